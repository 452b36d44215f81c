"""Random INSERT, UPDATE, DELETE and MERGE by `spark.sql`, beside the same changes as queries over a copy of the rows.

    python -m tests.spark.random_statements --statements 3000 --seed 1

After each statement the table has the rows of the copy, and so have earlier snapshots. A difference ends the run with the
statement and its seed.
"""

import argparse
import random
import sys
import tempfile

from pyspark.errors import PySparkException

from lsm_engine.spark import local_session, register

COLUMNS = {
    "id": "BIGINT",
    "n": "INT",
    "a.b": "INT",
    "end": "STRING",
    "day": "DATE",
    "price": "DECIMAL(10,2)",
    "ratio": "DOUBLE",
    "st": "STRUCT<p: INT, `q r`: STRING>",
    "list": "ARRAY<INT>",
}
SOURCE = {"id": "BIGINT", "n": "INT", "text": "STRING", "day": "DATE"}
KINDS = {
    "INT": ("n", "a.b"),
    "STRING": ("end",),
    "DATE": ("day",),
    "DECIMAL(10,2)": ("price",),
    "DOUBLE": ("ratio",),
}
SOURCE_KINDS = {"INT": ("n",), "STRING": ("text",), "DATE": ("day",)}
TABLE = "shop.random"
STATES_KEPT = 4
MAINTAINED_EVERY = 12


def quoted(name):
    return f"`{name}`"


class Grammar:
    """Statements by chance. `sides`: the aliases that an expression may name, "t" of the table and "src" of the source."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def literal(self, kind):
        chance = self.chance
        if chance.random() < 0.15:
            return f"CAST(NULL AS {kind})"
        match kind:
            case "INT":
                return str(chance.choice([0, 1, -1, 7, 500, chance.randrange(-99, 99)]))
            case "STRING":
                return chance.choice(
                    ["''", "'a'", "'B'", "'it\\'s'", "'{x}; -- y'", "'Ä%_'", "'when end'"]
                )
            case "DATE":
                return f"DATE'2024-02-{chance.randrange(1, 30):02}'"
            case "DECIMAL(10,2)":
                return f"CAST({chance.randrange(-999, 999)}.{chance.randrange(100):02} AS DECIMAL(10,2))"
            case "DOUBLE":
                return chance.choice(["0.5D", "-1.25D", "1e3D", "CAST('NaN' AS DOUBLE)"])
            case "BIGINT":
                return f"{chance.randrange(40)}L"
        if kind.startswith("ARRAY"):
            return f"array({self.literal('INT')}, {self.literal('INT')})"
        return f"named_struct('p', {self.literal('INT')}, 'q r', {self.literal('STRING')})"

    def column(self, kind, sides):
        side = self.chance.choice(sides)
        names = (KINDS if side == "t" else SOURCE_KINDS).get(kind, ())
        return f"{side}.{quoted(self.chance.choice(names))}" if names else self.literal(kind)

    def value(self, kind, sides, depth=0):
        chance = self.chance
        if depth > 1 or chance.random() < 0.3 or kind not in KINDS:
            return self.literal(kind)
        if chance.random() < 0.3:
            return self.column(kind, sides)
        inner = self.value(kind, sides, depth + 1)
        if chance.random() < 0.3:
            when, other = self.condition(sides, depth + 1), self.value(kind, sides, depth + 1)
            return f"CASE WHEN {when} THEN {inner} ELSE {other} END"
        match kind:
            case "INT":
                return chance.choice([f"({inner} % 100 + 1)", f"length({self.column('STRING', sides)})", f"extract(DAY FROM {self.column('DATE', sides)})", f"abs({inner} % 50)"])  # fmt: skip
            case "STRING":
                return chance.choice([f"upper({inner})", f"left(concat({inner}, 'x'), 6)", f"coalesce({inner}, '?')"])  # fmt: skip
            case "DATE":
                return f"date_add({inner}, 1)"
            case "DECIMAL(10,2)":
                return f"CAST({inner} / 2 AS DECIMAL(10,2))"
        return f"-({inner})"

    def condition(self, sides, depth=0):
        chance = self.chance
        if depth < 2 and chance.random() < 0.4:
            joined = f" {chance.choice(['AND', 'OR'])} ".join(self.condition(sides, depth + 1) for _ in range(2))  # fmt: skip
            return f"{chance.choice(['', 'NOT '])}({joined})"
        kind = chance.choice(list(KINDS))
        left = self.column(kind, sides)
        match chance.randrange(5):
            case 0:
                return f"{left} IS {chance.choice(['', 'NOT '])}NULL"
            case 1:
                return f"{left} IN ({self.literal(kind)}, {self.literal(kind)})"
            case 2:
                return f"{left} BETWEEN {self.literal(kind)} AND {self.value(kind, sides, 2)}"
            case 3 if kind == "STRING":
                return f"{left} LIKE {chance.choice(['%', 'a%', '%e%'])!r}"
        operator = chance.choice(["=", "<>", "<", ">=", "<=>"])
        return f"{left} {operator} {self.value(kind, sides, 1)}"

    def assignments(self, sides):
        """Return what SET says, and the value of each column that it sets."""
        names = self.chance.sample([name for name in COLUMNS if name != "id"], self.chance.randrange(1, 4))  # fmt: skip
        texts, values = [], {}
        for name in names:
            if name == "st" and self.chance.random() < 0.6:
                value = self.value("INT", sides)
                texts.append(f"{self.chance.choice(['', 't.'])}st.p = {value}")
                values[name] = f"named_struct('p', {value}, 'q r', t.st.`q r`)"
                continue
            values[name] = self.value(COLUMNS[name], sides)
            texts.append(f"{quoted(name)} = {values[name]}")
        return ", ".join(texts), values

    def rows(self, columns, most):
        ids = self.chance.sample(range(40), self.chance.randrange(1, most))
        kinds = [kind for name, kind in columns.items() if name != "id"]
        rows = (f"({key}L, {', '.join(map(self.literal, kinds))})" for key in ids)
        names = ", ".join(map(quoted, columns))
        return f"VALUES {', '.join(rows)} AS v({names})"

    def statement(self):
        """Return a statement, and the query that gives the rows of the table after it from the view `copy`."""
        kind = self.chance.choices(["insert", "update", "delete", "merge"], [2, 3, 1, 4])[0]
        return getattr(self, kind)()

    def insert(self):
        rows = self.rows(COLUMNS, 6)
        names = ", ".join(map(quoted, COLUMNS))
        casts = ", ".join(f"CAST({quoted(n)} AS {k}) AS {quoted(n)}" for n, k in COLUMNS.items())
        by_name = self.chance.choice([f"({names})", "BY NAME", ""])
        return (
            f"INSERT INTO {TABLE} {by_name} SELECT * FROM {rows}",
            f"SELECT * FROM copy t LEFT ANTI JOIN (SELECT * FROM {rows}) v ON t.id = v.id UNION ALL SELECT {casts} FROM {rows}",
        )

    def update(self):
        texts, values = self.assignments(("t",))
        condition = self.condition(("t",))
        columns = ", ".join(_chosen({f"({condition})": values}))
        return (
            f"UPDATE {TABLE} AS t SET {texts} WHERE {condition}",
            f"SELECT {columns} FROM copy t",
        )

    def delete(self):
        condition = self.condition(("t",))
        return (
            f"DELETE FROM {TABLE} t WHERE {condition}",
            f"SELECT * FROM copy t WHERE NOT coalesce({condition}, false)",
        )

    def merge(self):
        rows = self.rows(SOURCE, 9)
        texts, cases, deleted = [], {}, []
        guards = {
            ("MATCHED", ("t", "src")): "t.id IS NOT NULL AND src.id IS NOT NULL",
            ("NOT MATCHED", ("src",)): "t.id IS NULL",
            ("NOT MATCHED BY SOURCE", ("t",)): "src.id IS NULL",
        }
        for (match, sides), guard in guards.items():
            for number in range(self.chance.randrange(3)):
                condition = self.condition(sides) if number == 0 or self.chance.random() < 0.5 else "true"  # fmt: skip
                when = f"{guard} AND coalesce({condition}, false)"
                if match == "NOT MATCHED":
                    names = [n for n in COLUMNS if n != "id" and self.chance.random() < 0.5]
                    values = {name: self.value(COLUMNS[name], sides) for name in names}
                    action = f"INSERT ({', '.join(['id', *map(quoted, names)])}) VALUES ({', '.join(['src.id', *values.values()])})"  # fmt: skip
                    values = {name: values.get(name, "NULL") for name in COLUMNS} | {"id": "src.id"}
                elif self.chance.random() < 0.3:
                    action, values = "DELETE", {}
                    deleted.append(f"{when} AND NOT ({' OR '.join([*cases, 'false'])})")
                else:
                    text, values = self.assignments(sides)
                    action = f"UPDATE SET {text}"
                cases[when] = values
                texts.append(f"WHEN {match} AND {condition} THEN {action}")
        if not texts:
            return self.merge()
        gone = " OR ".join(f"({when})" for when in deleted) or "false"
        there = f"t.id IS NOT NULL OR {' OR '.join(f'({when})' for when in cases)}"
        source = f"(SELECT * FROM {rows}) AS src"
        return (
            f"MERGE INTO {TABLE} AS t USING {source} ON t.id = src.id {' '.join(texts)}",
            f"SELECT {', '.join(_chosen(cases))} FROM copy t FULL JOIN {source} ON t.id = src.id WHERE ({there}) AND NOT ({gone})",
        )


def _chosen(cases):
    """The columns after clauses: of the first whose condition holds, else as they are."""
    for name, kind in COLUMNS.items():
        whens = "".join(
            f" WHEN {when} THEN CAST({values.get(name, f't.{quoted(name)}')} AS {kind})"
            for when, values in cases.items()
        )
        yield f"CASE{whens} ELSE t.{quoted(name)} END AS {quoted(name)}"


def _rows(frame):
    return sorted((repr(tuple(row)) for row in frame.collect()), key=str)


def run(spark, count, seed):
    """Run statements; return how many were refused by Spark in both. Raises AssertionError at the first difference."""
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in COLUMNS.items())
    spark.sql(f"CREATE TABLE {TABLE} ({columns}) USING lsm TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')")  # fmt: skip
    schema = spark.table(TABLE).schema
    for field in schema.fields:
        field.metadata = {}
    grammar, states, refused = Grammar(seed), {}, 0
    spark.createDataFrame([], schema).createOrReplaceTempView("copy")
    for number in range(count):
        statement, query = grammar.statement()
        place = f"statement {number} of seed {seed}: {statement}"
        try:
            expected = spark.sql(query).collect()
        except PySparkException:
            expected = None  # a value that does not fit, in both
        try:
            (version, *_), = spark.sql(statement).collect()  # fmt: skip
        except PySparkException:
            if expected is not None:
                print(place)
                raise
            refused += 1
            continue
        assert expected is not None, f"Spark refuses the query of {place}"
        spark.createDataFrame(expected, schema).createOrReplaceTempView("copy")
        rows = _rows(spark.table("copy"))
        assert _rows(spark.sql(f"SELECT * FROM {TABLE}")) == rows, place
        if version is not None:
            states[version] = rows
        while len(states) > STATES_KEPT:
            states.pop(min(states))
        if number % MAINTAINED_EVERY == MAINTAINED_EVERY - 1:
            print(number + 1, flush=True)
            past = grammar.chance.choice([*states])
            assert _rows(spark.sql(f"SELECT * FROM {TABLE} VERSION AS OF {past}")) == states[past]
            spark.sql(grammar.chance.choice([f"OPTIMIZE {TABLE}", f"CALL sys.compact(table => '{TABLE}')"]))  # fmt: skip
    return refused


def main():
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = local_session(threads=2, quick_start=True, settings={"spark.log.level": "OFF"})
        register(spark, warehouse=folder)
        refused = run(spark, arguments.statements, arguments.seed)
        print(f"{arguments.statements} statements agree; {refused} were refused in both")
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
