"""The grammar of SQL selectors, for the parser generator `lark`: JMS 2.0, section 3.8.1.1.

A dialect decides which characters an identifier may have. The parser of a dialect is built when it is first used.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

GRAMMAR: Final = r"""
start: _expression
_expression: disjunction
disjunction: conjunction (_OR conjunction)*
conjunction: _negation (_AND _negation)*
_negation: _predicate | negation
negation: NOT _negation

_predicate: addition | comparison | between | in_list | like | is_null
comparison: addition OPERATOR addition
between: addition [NOT] _BETWEEN addition _AND addition
in_list: addition [NOT] _IN "(" addition ("," addition)* ")"
like: addition [NOT] _LIKE STRING [_ESCAPE STRING]
is_null: addition _IS [NOT] _NULL

addition: multiplication (SIGN multiplication)*
multiplication: _factor (TIMES _factor)*
_factor: signed | _primary
signed: SIGN _factor
_primary: "(" _expression ")" | identifier | quoted | string | integer | decimal | true | false

identifier: IDENTIFIER
quoted: QUOTED
string: STRING
integer: INTEGER
decimal: DECIMAL
true: _TRUE
false: _FALSE

OPERATOR: "<>" | "!=" | "<=" | ">=" | "=" | "<" | ">"
SIGN: "+" | "-"
TIMES: "*" | "/" | "%"

_AND.2: /AND(?![PART])/i
_OR.2: /OR(?![PART])/i
NOT.2: /NOT(?![PART])/i
_BETWEEN.2: /BETWEEN(?![PART])/i
_IN.2: /IN(?![PART])/i
_LIKE.2: /LIKE(?![PART])/i
_ESCAPE.2: /ESCAPE(?![PART])/i
_IS.2: /IS(?![PART])/i
_NULL.2: /NULL(?![PART])/i
_TRUE.2: /TRUE(?![PART])/i
_FALSE.2: /FALSE(?![PART])/i

DECIMAL.2: /(\d+\.\d*|\.\d+)(e[+-]?\d+)?[fd]?(?![\w$.])/i | /\d+(e[+-]?\d+[fd]?|[fd])(?![\w$.])/i
INTEGER: /(0x[0-9a-f]+|\d+)l?(?![\w$.])/i
STRING: /'(''|[^'])*'/
QUOTED: /"(""|[^"])+"/
IDENTIFIER: /[^\W\d][PART]*|\$[PART]*/

%ignore /[ \t\f\r\n]+/
"""

JMS: Final = r"\w$."
"""What follows the first character of an identifier: as in Java, and the dot that names of properties may have."""
AMQP: Final = r"\w$.-"
"""With the hyphen, for names such as `properties.group-id`."""


@cache
def parser(part: str, transformer: Any) -> Any:
    """Return the parser of a dialect. `transformer` has a method for each rule, and must always be the same."""
    from lark import Lark

    grammar = GRAMMAR.replace("PART", part)
    return Lark(grammar, parser="lalr", lexer="basic", transformer=transformer, maybe_placeholders=True)
