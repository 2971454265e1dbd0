"""Kinds of signed answers, a file each: parameters, result, cost and checks; `registry` lists them."""
