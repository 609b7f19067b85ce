"""The parts of `recognise_quantized`: one file a family of operators.

A recogniser is given a float expression and the `Goal` it is quantised to. It returns the int8
expression of the same value, or raises `Declined` with the reason.
"""
