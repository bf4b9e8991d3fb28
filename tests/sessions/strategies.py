"""Any message at all, for property tests: hypothesis builds each kind from its field types."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from sessions.messages import KINDS, Message

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_INTS = st.integers(-(2**63), 2**63 - 1)
_FLOATS = st.floats(allow_nan=False)


def values(kind: msgspec.inspect.Type) -> st.SearchStrategy[object]:
    """Any value of a field's type."""
    match kind:
        case msgspec.inspect.StrType():
            return _TEXT
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType():
            return _INTS
        case msgspec.inspect.FloatType():
            return _FLOATS
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.LiteralType(values=choices):
            return st.sampled_from(choices)
        case msgspec.inspect.UnionType(types=types):
            return st.one_of([values(one) for one in types])
        case msgspec.inspect.ListType(item_type=item):
            return st.lists(values(item), max_size=3)
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=3)
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values(field.type) for field in fields})
    raise AssertionError(f"no strategy for {kind}")


_BY_KIND = {name: values(msgspec.inspect.type_info(kind)) for name, kind in KINDS.items()}


def messages(*kinds: type[Message]) -> st.SearchStrategy[Message]:
    """Any message, or any of these kinds."""
    names = [str(kind.__struct_config__.tag) for kind in kinds] or sorted(_BY_KIND)
    return st.sampled_from(names).flatmap(lambda name: _BY_KIND[name])  # type: ignore[return-value]
