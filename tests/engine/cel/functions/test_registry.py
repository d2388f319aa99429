from __future__ import annotations

from engine.cel.functions import FAMILIES, FUNCTIONS, Overload, function_table
from engine.cel.values import UInt


def _name(*_: object) -> None: ...


BY_TYPE = Overload("f", (str, int), _name)
ANY = Overload("f", (object,), _name)
MANY = Overload("f", (bool, int), _name, variadic=True)
MEMBER = Overload("f", (list,), _name, member=True)


def test_dispatch_is_on_exact_types() -> None:
    function = function_table([[BY_TYPE]])["f", False]
    assert function.find((str, int)) is BY_TYPE
    assert function.find((str, bool)) is None
    assert function.find((str, UInt)) is None
    assert function.find((str,)) is None


def test_an_open_overload_takes_what_no_closed_one_does() -> None:
    function = function_table([[ANY, MANY], [BY_TYPE]])["f", False]
    assert function.find((str, int)) is BY_TYPE
    assert function.find((dict,)) is ANY
    assert function.find((bool, int, int, int)) is MANY
    assert function.find((bool, int, str)) is None


def test_a_list_parameter_takes_a_tuple() -> None:
    function = function_table([[MEMBER]])["f", True]
    assert function.find((list,)) is function.find((tuple,)) is MEMBER


def test_members_are_apart_from_plain_functions() -> None:
    assert set(function_table([[ANY, MEMBER]])) == {("f", False), ("f", True)}


def test_no_two_overloads_of_a_function_take_the_same_types() -> None:
    for function in FUNCTIONS.values():
        params = [overload.params for overload in function.overloads]
        assert len(set(params)) == len(params), function.name


def test_every_family_is_in_the_table() -> None:
    assert sum(map(len, FAMILIES)) == sum(
        len(function.overloads) for function in FUNCTIONS.values()
    )
