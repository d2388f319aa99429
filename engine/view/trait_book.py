"""The traits of pods by number, and which of them a selector, a pod or a port concerns.

A number never changes its meaning: so views and what-ifs of earlier moments go on reading the book.
One with many traits of pods that are gone is replaced by a new one; see `PodTable`. The numbers of
the pods on a row are int32, one after another in bytes, which views of different moments share.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from sys import byteorder
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.caches import LruCache
from engine.model.disruption_budget import CLUSTER_AUTOSCALER, KARPENTER, DisruptionBudget
from engine.model.pod import (
    NO_TRAITS,
    REQUIRED,
    AffinityTerm,
    HostPort,
    decoded_traits,
    parse_affinity_terms,
)
from engine.model.selectors import LabelSelector, Operator, Requirement
from engine.view.axis import BoolColumn

NUMBER_BYTES: Final = 4


def with_number(numbers: bytes, number: int, times: int = 1) -> bytes:
    """Return numbers with another one, so many times."""
    return numbers + number.to_bytes(NUMBER_BYTES, byteorder) * times


def without_number(numbers: bytes, number: int) -> bytes:
    """Return numbers without one of those that are equal to the given one, which is there."""
    sought = number.to_bytes(NUMBER_BYTES, byteorder)
    at = numbers.index(sought)
    while at % NUMBER_BYTES:  # parts of two others that look alike
        at = numbers.index(sought, at + 1)
    return numbers[:at] + numbers[at + NUMBER_BYTES :]


_MATCHES: Final = 2_048  # selectors in use: one for each template that is spread
_MATCH_BYTES: Final = 4 * 2**20  # each takes a byte for each number
_MOST_ALIKE: Final = 1_000  # terms that are looked at one by one for a pod
_MOST_WAYS: Final = 64  # to find a term by a namespace and a label
_FIRST_ROOM: Final = 64
_UNKNOWN: Final = -1
_ABSENT: Final = -2  # of no row, not even of those that are unknown
_AUTOSCALERS: Final = (CLUSTER_AUTOSCALER, KARPENTER)

_Numbers: TypeAlias = NDArray[np.int32]
_Value = TypeVar("_Value", bound=Hashable)


class PodQuery(NamedTuple):
    """Which pods are selected.

    Attributes:
        namespaces: in which they are, None for any.
        selector: of their labels; an empty one selects all.
    """

    namespaces: frozenset[str] | None
    selector: LabelSelector

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether it selects a pod of a namespace with these labels."""
        is_there = self.namespaces is None or namespace in self.namespaces
        return is_there and self.selector.matches(labels)


class TraitBook:
    """Traits by number, in the order in which they were first seen; NO_TRAITS is 0."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []  # the traits of each number
        self.anti_affinity = CarriedTerms()  # the terms by which pods keep others away
        # the terms by which pods want others near, by their weight; below 0 for away, REQUIRED
        # where they must be near
        self.attraction: dict[int, CarriedTerms] = {}
        self._number: dict[bytes, int] = {}
        # By number: namespace, whether terminating, whether each autoscaler does not evict it.
        self._pods = _Table(columns=2 + len(_AUTOSCALERS))
        self._labels = _Table(columns=3)  # number, key, key and value
        self._namespaces: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._pairs: dict[tuple[str, str], int] = {}
        self._on_port: dict[tuple[str, int], list[tuple[HostPort, int]]] = {}
        self._matches = _Matches(_MATCHES, _MATCH_BYTES)
        self._protected = _Protected()
        self._number[NO_TRAITS] = 0
        self.texts.append(NO_TRAITS)
        self._pods.add([(_UNKNOWN, 0, *[0 for _ in _AUTOSCALERS])])

    def __len__(self) -> int:
        return len(self.texts)

    def number(self, text: bytes) -> int:
        """Return the number of traits, a new one if they have none."""
        number = self._number.get(text)
        return self._add(text) if number is None else number

    def matching(self, query: PodQuery) -> BoolColumn:
        """Return which numbers a query selects, shape (len(self),)."""
        return self._matches.of(query, self)

    @property
    def terminating(self) -> BoolColumn:
        """Which numbers are of pods that are being deleted, shape (len(self),)."""
        is_terminating: BoolColumn = self._pods.values[1] != 0
        return is_terminating

    def not_evictable_by(self, autoscaler: str, exhausted: Mapping[str, PodQuery]) -> BoolColumn:
        """Return which numbers are of pods that no autoscaler evicts, shape (len(self),)."""
        by_itself: BoolColumn = self._pods.values[2 + _AUTOSCALERS.index(autoscaler)] != 0
        return (by_itself | self._protected.by(exhausted, self)) & ~self.terminating

    def on_ports(self, ports: Iterable[HostPort]) -> BoolColumn:
        """Return which numbers are of pods that conflict with some ports, shape (len(self),)."""
        found = np.zeros(len(self), np.bool_)
        for port in ports:
            for taken, number in self._on_port.get(port[1:], ()):
                if taken.conflicts_with(port):
                    found[number] = True
        return found

    def repelling(self, terms: Iterable[AffinityTerm]) -> BoolColumn:
        """Return which numbers are of pods that have any of some terms, shape (len(self),)."""
        found = np.zeros(len(self), np.bool_)
        for term in terms:
            found[self.anti_affinity.carriers(term)] = True
        return found

    def attracted(
        self, terms: Iterable[tuple[int, AffinityTerm]], required_weight: int
    ) -> NDArray[np.int64]:
        """Return the sum of the weights of terms that each number has, shape (len(self),)."""
        sums = np.zeros(len(self), np.int64)
        for weight, term in terms:
            counted = required_weight if weight == REQUIRED else weight
            np.add.at(sums, self.attraction[weight].carriers(term), counted)
        return sums

    def select(self, query: PodQuery, first: int) -> BoolColumn:
        """Return which numbers a query selects, from the first one of interest on."""
        namespaces = self._pods.values[0, first:]
        labels = self._labels.values
        labels = labels[:, labels[0].searchsorted(np.int32(first)) :]
        found: BoolColumn
        if query.namespaces is None:
            found = namespaces != _UNKNOWN
        else:
            found = _any_of(namespaces, [*map(self._namespace_number, query.namespaces)])
        for requirement in query.selector.requirements:
            holds = np.zeros(namespaces.size, np.bool_)
            # Few have a label: to look for them first takes a quarter of indexing by all.
            (having,) = self._with_label(requirement, labels).nonzero()
            holds[labels[0].take(having) - first] = True
            is_not = requirement.operator in {Operator.NOT_IN, Operator.DOES_NOT_EXIST}
            found &= ~holds if is_not else holds
        return found

    def _with_label(self, requirement: Requirement, labels: _Numbers) -> BoolColumn:
        """Return which labels are of the key, and of a value, that a requirement names."""
        key = requirement.key
        found: BoolColumn
        if not requirement.values:
            found = labels[1] == self._keys.get(key, _UNKNOWN)
        else:
            pairs = [self._pairs.get((key, value), _UNKNOWN) for value in requirement.values]
            found = _any_of(labels[2], pairs)
        return found

    def _namespace_number(self, name: str) -> int:
        return self._namespaces.get(name, _ABSENT)

    def _add(self, text: bytes) -> int:
        number = self._number[text] = len(self.texts)
        self.texts.append(text)
        traits = decoded_traits(text)
        namespace = _index(self._namespaces, traits.namespace)
        by = [autoscaler in traits.not_evictable_by for autoscaler in _AUTOSCALERS]
        self._pods.add([(namespace, traits.terminating, *by)])
        self._labels.add(
            [
                (number, _index(self._keys, key), _index(self._pairs, (key, value)))
                for key, value in traits.labels.items()
            ]
        )
        for port in traits.host_ports:
            self._on_port.setdefault(port[1:], []).append((port, number))
        if traits.anti_affinity:
            terms = parse_affinity_terms(traits.anti_affinity, traits.namespace)
            self.anti_affinity.add(number, terms)
        for weighted in traits.attraction:
            terms = parse_affinity_terms((weighted.pod_affinity_term,), traits.namespace)
            self.attraction.setdefault(weighted.weight, CarriedTerms()).add(number, terms)
        return number


class CarriedTerms:
    """The terms of pods about other pods, each once.

    Of very many terms that ask for the same label, or for none, only the first are heeded: anyone
    may write them, and they are looked at for every pod.
    """

    def __init__(self) -> None:
        self.label_keys: set[str] = set()  # of pods, by which any term tells them apart
        self._carriers: dict[AffinityTerm, array[int]] = {}
        # By namespace, None for any, and a label that they ask for, None for none.
        self._found_by: dict[tuple[str | None, tuple[str, str] | None], list[AffinityTerm]] = (
            defaultdict(list)
        )

    def __bool__(self) -> bool:
        return bool(self._carriers)

    def add(self, number: int, terms: Iterable[AffinityTerm]) -> None:
        """Add the terms of new traits."""
        for term in terms:
            carriers = self._carriers.get(term)
            if carriers is None:
                carriers = self._carriers[term] = array("i")
                if term.selector is not None:
                    self.label_keys.update(each.key for each in term.selector.requirements)
                for way in _ways_to(term):
                    found = self._found_by[way]
                    if len(found) < _MOST_ALIKE:
                        found.append(term)
            carriers.append(number)

    def carriers(self, term: AffinityTerm) -> NDArray[np.intp]:
        """Return the numbers of traits that hold a term, once for each time that they do."""
        return np.array(self._carriers.get(term, ()), np.intp)

    def against(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> list[AffinityTerm]:
        """Return the terms that select a pod, in the order in which they were first seen."""
        found: dict[AffinityTerm, None] = {}
        for where in (namespace, None):
            for label in (*labels.items(), None):
                for term in self._found_by.get((where, label), ()):
                    if term.matches(namespace, labels, namespace_labels):
                        found[term] = None
        return list(found)


def _ways_to(term: AffinityTerm) -> Iterable[tuple[str | None, tuple[str, str] | None]]:
    """Return the keys by which a term is found."""
    if term.selector is None:
        return ()
    labels: Sequence[tuple[str, str] | None] = (None,)
    for requirement in term.selector.requirements:
        if requirement.operator is Operator.IN and len(requirement.values) <= _MOST_WAYS:
            labels = [(requirement.key, value) for value in requirement.values]
            break
    names: Iterable[str | None] = term.namespaces
    if term.namespace_selector is not None or len(term.namespaces) * len(labels) > _MOST_WAYS:
        names = (None,)
    return [(name, label) for name in names for label in labels]


class _Matches(LruCache[BoolColumn]):
    """Which numbers queries select; only traits that are new are looked at again."""

    def of(self, query: PodQuery, book: TraitBook) -> BoolColumn:
        """Return which numbers of a book a query selects."""
        entry = self._entries.get(query)
        known = None if entry is None else entry.value
        if known is None or known.size < len(book):
            first = 0 if known is None else known.size
            found = book.select(query, first)
            known = found if known is None else np.concatenate([known, found])
            self._put(query, 0, known, known.nbytes)
        return known


class _Protected:
    """Which numbers any of some queries selects; only what is new is looked at again."""

    def __init__(self) -> None:
        self._queries: Mapping[str, PodQuery] = {}
        self._times = np.zeros(0, np.int32)  # by number, how many of the queries select it

    def by(self, queries: Mapping[str, PodQuery], book: TraitBook) -> BoolColumn:
        """Return which numbers of a book the queries select, by their names."""
        first = self._times.size
        if queries is not self._queries:
            for name in self._queries.keys() | queries.keys():
                old, new = self._queries.get(name), queries.get(name)
                if old is not new:
                    self._times -= 0 if old is None else book.select(old, 0)[:first]
                    self._times += 0 if new is None else book.select(new, 0)[:first]
            self._queries = queries
        if first < len(book):
            more = np.zeros(len(book) - first, np.int32)
            for query in queries.values():
                more += book.select(query, first)
            self._times = np.concatenate([self._times, more])
        selected: BoolColumn = self._times > 0
        return selected


class _Table:
    """Rows of small integers that are added and never changed.

    What was read of it stays right while rows are added.
    """

    def __init__(self, columns: int) -> None:
        self._table = np.zeros((columns, _FIRST_ROOM), np.int32)
        self._size = 0

    @property
    def values(self) -> _Numbers:
        return self._table[:, : self._size]

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        if not rows:
            return
        size = self._size + len(rows)
        if size > self._table.shape[1]:
            table = np.zeros((len(self._table), 2 * size), np.int32)
            table[:, : self._size] = self.values
            self._table = table
        self._table[:, self._size : size] = np.array(rows, np.int32).T
        self._size = size


def _any_of(numbers: NDArray[np.int32], wanted: Sequence[int]) -> BoolColumn:
    """Return which numbers are wanted; quick for a single one, the most common case."""
    found: BoolColumn = numbers == wanted[0] if len(wanted) == 1 else np.isin(numbers, wanted)
    return found


def _index(indices: dict[_Value, int], value: _Value) -> int:
    """Return the index of a value, the next one if it has none."""
    return indices.setdefault(value, len(indices))


_MOST: int = 1_000
"""That are heeded: anyone may write them, and each is looked at for every new kind of pod."""


class ExhaustedBudgets:
    """The queries of these budgets; a mapping that was given out never changes."""

    def __init__(self) -> None:
        self._queries: Mapping[str, PodQuery] = MappingProxyType({})
        self._changed: list[PodQuery] = []

    def snapshot(self) -> Mapping[str, PodQuery]:
        """Return what each selects, by `namespace/name`; the same object until one changes."""
        return self._queries

    def take_changed(self) -> list[PodQuery]:
        """Return what the budgets select that became exhausted or ceased to be, since last time."""
        changed, self._changed = self._changed, []
        return changed

    def put(self, budget: DisruptionBudget) -> None:
        query = None
        if budget.selector is not None and budget.disruptions_allowed <= 0:
            query = PodQuery(frozenset((budget.namespace,)), budget.selector)
        self._replace(budget.key, query)

    def drop(self, key: str) -> None:
        self._replace(key, None)

    def _replace(self, key: str, query: PodQuery | None) -> None:
        old = self._queries.get(key)
        if query == old or (old is None and len(self._queries) >= _MOST):
            return
        queries = dict(self._queries)
        queries.pop(key, None)
        if query is not None:
            queries[key] = query
        self._queries = MappingProxyType(queries)
        self._changed += [each for each in (old, query) if each is not None]
