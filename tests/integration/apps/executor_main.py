"""A program that runs its own functions, classes and enums in an executor."""

import dataclasses
import enum
import sys

import jobpool

OFFSET = 7


class Node:
    def __init__(self, value):
        self.value = value

    def doubled(self):
        return Node(2 * self.value + OFFSET - OFFSET)


@dataclasses.dataclass
class Row:
    name: str


class Colour(enum.Enum):
    RED = 1

    def shout(self):
        return self.name + "!"


class Failure(Exception):
    pass


def helper(x):
    return x + OFFSET


def use_helper(x):
    return helper(x)


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def is_node(value):
    return type(value) is Node


def fail():
    raise Failure("on purpose")


def check():
    with jobpool.Executor(2) as executor:
        assert executor.submit(use_helper, 1).result() == 8
        assert executor.submit(fibonacci, 10).result() == 55
        node = executor.submit(Node(3).doubled).result()
        assert (type(node), node.value) == (Node, 6)
        mixed = executor.submit(lambda: [Row("a"), Colour.RED, Node(1)]).result()
        assert mixed[:2] == [Row("a"), Colour.RED]
        assert type(mixed[2]) is Node
        assert (
            executor.submit(lambda colour: colour.shout(), Colour.RED).result()
            == "RED!"
        )
        assert list(executor.map(lambda x: x * OFFSET, range(3))) == [0, 7, 14]
        assert list(executor.map(is_node, [Node(1), 1])) == [True, False]
        assert list(executor.map(is_node, [Node(1), 1], chunksize=2)) == [True, False]
        error = executor.submit(fail).exception()
        assert type(error) is Failure
        assert "Failure: on purpose" in str(error.__cause__)
    sys.stdout.write("fine\n")


check()
