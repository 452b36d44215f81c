"""Access to objects of the JVM that no public method of PySpark returns. No other module uses them.

Each use has a way out: where a version of Spark has renamed what is used here, the function says that it does not know.
"""

import json
import re
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from py4j.clientserver import ClientServer  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from lsm_engine.base.errors import ErrorKind, LsmError
from lsm_engine.base.record import record
from lsm_engine.spark.session import AT_WORK, STATEMENTS
from lsm_engine.spark.statement import StatementError, position_of

P = ParamSpec("P")
R = TypeVar("R")
_RENAMED = (Py4JError, AttributeError, TypeError, ValueError)
"""The errors of py4j and Python for a class, a method or an attribute that does not exist."""


def _unless_renamed(function: Callable[P, R | None]) -> Callable[P, R | None]:
    """Have a function return None where this version of Spark lacks what it asks for: its callers have a slower way."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except _RENAMED:
            return None

    return guarded


# -- Plans -----------------------------------------------------------------------------------------

_ESTIMATED = {
    "Aggregate", "ArrowEvalPython", "BatchEvalPython", "Distinct", "Filter", "GlobalLimit",
    "InMemoryRelation", "Join", "LocalLimit", "LocalRelation", "LogicalRelation", "Offset",
    "OneRowRelation", "Project", "Range", "Repartition", "RepartitionByExpression", "Sort",
    "SubqueryAlias", "Union", "Window",
}  # fmt: skip
"""Steps of a plan that Spark does not take for smaller than they are, as it does what explodes or maps."""


def _optimized(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 -- Spark shows a plan nowhere else


@_unless_renamed
def estimated_bytes(frame: DataFrame) -> int | None:
    """Return how many bytes Spark takes the rows for; None where the estimate is no upper bound."""
    plan = _optimized(frame)
    return int(str(plan.stats().sizeInBytes())) if _is_estimated(plan) else None


def _is_estimated(plan: Any) -> bool:
    return plan.nodeName() in _ESTIMATED and all(map(_is_estimated, _items(plan.children())))


@_unless_renamed
def referenced_columns(frame: DataFrame) -> frozenset[str] | None:
    """Return which columns a projection reads of the rows below it; None for any other plan."""
    plan = _optimized(frame)
    if plan.nodeName() != "Project" or plan.children().apply(0).children().size():
        # Only of a projection of the rows themselves are the references all that the expressions need.
        return None
    return frozenset(column.name() for column in _items(plan.references().toSeq()))


@record
class ParquetRelation:
    """The Parquet files that a DataFrame is, and no more. `uris`: of the files, `columns`: their names in the files."""

    byte_count: int
    uris: tuple[str, ...]
    columns: tuple[str, ...]


@_unless_renamed
def parquet_relation(frame: DataFrame) -> ParquetRelation | None:
    """Return the Parquet files whose rows a DataFrame is, some of their columns or all; None where it does more."""
    plan = _optimized(frame)
    chosen = None
    if plan.nodeName() == "Project":
        # A choice of columns is allowed; an expression is not, as PyArrow could not compute it.
        chosen = [_source(attribute) for attribute in _items(plan.projectList())]
        plan = plan.children().apply(0)
    if _kind(plan) != "LogicalRelation" or _kind(plan.relation()) != "HadoopFsRelation":
        return None
    relation = plan.relation()
    options = relation.options()
    is_readable = (
        relation.fileFormat().toString() == "Parquet"
        and relation.partitionSchema().isEmpty()
        and _kind(relation.location()) == "InMemoryFileIndex"
        and (options.isEmpty() or (options.size() == 1 and options.contains("path")))
    )
    names = {attribute.exprId().id(): attribute.name() for attribute in _items(plan.output())}
    ids = [*names] if chosen is None else chosen
    if not is_readable or not all(number in names for number in ids):
        return None
    return ParquetRelation(
        byte_count=int(relation.sizeInBytes()),
        uris=tuple(relation.location().inputFiles()),
        columns=tuple(names[number] for number in ids),
    )


def _source(expression: Any) -> int | None:
    """Return the number of the attribute that an expression hands on as it is."""
    if _kind(expression) == "Alias":
        expression = expression.child()
    return int(expression.exprId().id()) if _kind(expression) == "AttributeReference" else None


def _kind(jvm: Any) -> str:
    return str(jvm.getClass().getSimpleName())


def _items(seq: Any) -> Iterator[Any]:
    return (seq.apply(index) for index in range(seq.size()))


# -- The parser of `spark.sql` ---------------------------------------------------------------------
#
# A class in Java stands before Spark's parser. It asks a function of this process about the text of a statement, and hands
# all else to Spark's: text that is no statement never leaves the JVM. Janino, by which Spark compiles its queries, compiles
# it, with each method that the ParserInterface of this version of Spark has.

_PARSER = "LsmParser"
_REFUSAL = """  public static final class Refusal extends org.apache.spark.sql.AnalysisException {
    private final String condition;
    private final String state;
    Refusal(String message, String condition, String state, Integer line, Integer column) {
      super(message, scala.Option.apply(line), scala.Option.apply(column), scala.Option.empty(),
        scala.Option.apply(condition), scala.collection.immutable.Map$.MODULE$.empty(),
        new org.apache.spark.QueryContext[0]);
      this.condition = condition;
      this.state = state;
    }
    public String getCondition() { return condition; }
    public String getErrorClass() { return condition; }
    public String getSqlState() { return state; }
  }
"""
_INTERFACE = "org.apache.spark.sql.catalyst.parser.ParserInterface"
_SOURCE = """
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import java.util.function.Function;

public final class LsmParser implements %(interface)s {
  private final org.apache.spark.sql.classic.SparkSession session;
  private final %(interface)s spark;
  private final Function sessions;
  private volatile Function statements;

  LsmParser(Object session, Object spark, Function sessions, Function statements) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
    this.spark = (%(interface)s) spark;
    this.sessions = sessions;
    this.statements = statements;
  }

  private LogicalPlan planned(String text) throws org.apache.spark.sql.catalyst.parser.ParseException {
    org.apache.spark.SparkContext context = session.sparkContext();
    // The thread of the JVM is the one mark of a nested statement: Python may take the call on any thread of its own.
    if (context.getLocalProperty("%(at_work)s") != null) return null;
    if (!"true".equals(session.conf().get("%(setting)s", "true"))) return null;
    Object answer;
    context.setLocalProperty("%(at_work)s", "true");
    try {
      if (statements == null) statements = (Function) sessions.apply(session);
      answer = statements.apply(text);
    } catch (py4j.Py4JNetworkException gone) {
      return null; // the process of Python has ended
    } finally {
      context.setLocalProperty("%(at_work)s", null);
    }
    if (answer instanceof Refusal && "%(syntax)s".equals(((Refusal) answer).state)) spark.parsePlan(text);
    if (answer instanceof Throwable) org.apache.spark.unsafe.Platform.throwException((Throwable) answer);
    return (LogicalPlan) answer;
  }

  private static String substituted(String text, Object parameters) {
    if (text.indexOf(':') < 0 && text.indexOf('?') < 0) return text;
    try {
      java.lang.reflect.Method[] methods =
        Class.forName("org.apache.spark.sql.catalyst.parser.ParameterHandler").getMethods();
      for (int i = 0; i < methods.length; i++)
        if (methods[i].getName().equals("substituteParameters"))
          return (String) ((scala.Product) methods[i].invoke(null, new Object[] {text, parameters})).productElement(0);
    } catch (Exception refused) {
      return null; // Spark's parser refuses it with its own words
    }
    return null;
  }
%(methods)s

  public static final class Factory {
    public Object parser(Object session, Object spark, Function sessions, Function statements) {
      return new LsmParser(session, spark, sessions, statements);
    }
    public Object builder(Function sessions) { return new Builder(sessions); }
    public Object refusal(String message, String condition, String state, Integer line, Integer column) {
      return new Refusal(message, condition, state, line, column);
    }
  }

  static final class Builder extends scala.runtime.AbstractFunction2 {
    private final Function sessions;
    Builder(Function sessions) { this.sessions = sessions; }
    public Object apply(Object session, Object spark) { return new LsmParser(session, spark, sessions, null); }
  }

%(refusal)s}
"""
_READS = "LsmReads"
_READS_SOURCE = """
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNotNull;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

public final class LsmReads extends org.apache.spark.sql.catalyst.rules.Rule {
  private final org.apache.spark.sql.classic.SparkSession session;
  private final Function frames;

  LsmReads(Object session, Function frames) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
    this.frames = frames;
  }

  public TreeNode apply(TreeNode plan) {
    if (writesNewTable(plan)) org.apache.spark.unsafe.Platform.throwException(
      new Refusal(%(no_name)s, "LSM_INVALID_OPTION", "42616", null, null));
    try {
      return read((LogicalPlan) plan);
    } catch (Throwable renamed) {
      return plan; // Spark reads by tasks in Python, and raises again what is wrong with the query
    }
  }

  private static boolean writesNewTable(TreeNode plan) {
    String kind = plan.getClass().getSimpleName();
    if (!kind.equals("ReplaceTableAsSelect") && !kind.equals("CreateTableAsSelect")) return false;
    try {
      Object spec = plan.getClass().getMethod("tableSpec", new Class[0]).invoke(plan, new Object[0]);
      Object format = spec.getClass().getMethod("provider", new Class[0]).invoke(spec, new Object[0]);
      Object place = spec.getClass().getMethod("location", new Class[0]).invoke(spec, new Object[0]);
      Object options = plan.getClass().getMethod("writeOptions", new Class[0]).invoke(plan, new Object[0]);
      boolean isPlaced = ((scala.Option) place).isDefined() || ((scala.collection.Map) options).contains("path");
      return !isPlaced && ((scala.Option) format).contains("%(format)s");
    } catch (Exception renamed) {
      return false; // the source refuses the rows, once Spark has dropped the name
    }
  }

  private LogicalPlan read(LogicalPlan node) throws Exception {
    LogicalPlan below = node;
    List users = new ArrayList();
    if (below instanceof Project) {
      users.add(below);
      below = ((Project) below).child();
    }
    List conditions = new ArrayList();
    while (below instanceof Filter) {
      users.add(below);
      conditions.add(text(((Filter) below).condition()));
      below = ((Filter) below).child();
    }
    if (below instanceof DataSourceV2ScanRelation) {
      List needed = node instanceof Project ? users : null;
      LogicalPlan rows = rows((DataSourceV2ScanRelation) below, needed, conditions);
      if (rows == null) return node;
      LogicalPlan plan = (LogicalPlan) session.sessionState().optimizer().execute(above(node, below, rows));
      return named(CollectionConverters.asJava(node.output()), plan, true); // the optimizer may number columns anew
    }
    boolean changes = false;
    List children = new ArrayList();
    for (int i = 0; i < node.children().size(); i++) {
      LogicalPlan child = (LogicalPlan) node.children().apply(i);
      LogicalPlan other = read(child);
      changes = changes || other != child;
      children.add(other);
    }
    return changes ? (LogicalPlan) node.withNewChildren(seq(children)) : node;
  }

  private LogicalPlan above(LogicalPlan node, LogicalPlan relation, LogicalPlan rows) {
    if (node == relation) return rows;
    List children = new ArrayList();
    children.add(above((LogicalPlan) node.children().apply(0), relation, rows));
    return (LogicalPlan) node.withNewChildren(seq(children));
  }

  private LogicalPlan rows(DataSourceV2ScanRelation relation, List users, List conditions) throws Exception {
    if (!"%(format)s".equals(relation.relation().table().name())) return null;
    List attributes = new ArrayList();
    List names = new ArrayList();
    for (int i = 0; i < relation.output().size(); i++) {
      AttributeReference attribute = (AttributeReference) relation.output().apply(i);
      boolean isNeeded = users == null;
      for (int user = 0; users != null && user < users.size(); user++)
        isNeeded = isNeeded || ((LogicalPlan) users.get(user)).references().contains(attribute);
      if (!isNeeded) continue;
      attributes.add(attribute);
      names.add(attribute.name());
    }
    LinkedHashMap facts = new LinkedHashMap();
    facts.put("options", relation.relation().options().asCaseSensitiveMap());
    facts.put("schema", relation.relation().schema().json());
    facts.put("columns", names);
    facts.put("conditions", conditions);
    String question = new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(facts);
    Object frame = frames.apply(question);
    if (frame == null) return null;
    LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset) frame).queryExecution().analyzed();
    return named(attributes, plan, false);
  }

  private static LogicalPlan named(List attributes, LogicalPlan plan, boolean isLast) {
    if (plan.output().size() != attributes.size()) throw new IllegalStateException("columns of a read");
    List columns = new ArrayList();
    for (int i = 0; i < attributes.size(); i++) {
      Attribute attribute = (Attribute) attributes.get(i);
      Attribute column = (Attribute) plan.output().apply(i);
      if (!column.dataType().equals(attribute.dataType())) throw new IllegalStateException("types of a read");
      // A write into a column that is NOT NULL takes no column that may be null.
      boolean isKnown = isLast && !attribute.nullable() && column.nullable();
      Expression value = isKnown ? (Expression) new KnownNotNull((Expression) column) : (Expression) column;
      columns.add(new Alias(value, attribute.name(), attribute.exprId(), attribute.qualifier(),
        scala.Option.apply(attribute.metadata()), (Seq) Nil$.MODULE$));
    }
    return new Project(seq(columns), plan);
  }

  private static String text(Expression condition) {
    try {
      return condition.sql();
    } catch (RuntimeException hidden) {
      return ""; // some expressions have no text
    }
  }

  private static Seq seq(List items) {
    return CollectionConverters.asScala(items).toSeq();
  }

  public static final class Factory {
    public Object rule(Object session, Function frames) { return new LsmReads(session, frames); }
  }

%(refusal)s}
"""
_OWN_NAME = re.compile(r", `_lsm_\w+`|`_lsm_\w+`, ")
_SYNTAX = "42601"
_STATE = "HY000"
_UNSUPPORTED = "0A000"
_STATES = {
    ErrorKind.CONFLICT: "40001", ErrorKind.RETRIES_EXHAUSTED: "40001", ErrorKind.COMMIT_UNKNOWN: "08007",
    ErrorKind.NO_SUCH_DATABASE: "42704", ErrorKind.NO_SUCH_TAG: "42704", ErrorKind.NO_SUCH_SNAPSHOT: "42704",
    ErrorKind.EXPIRED: "42704", ErrorKind.NO_SUCH_TABLE: "42P01", ErrorKind.NO_SUCH_COLUMN: "42703",
    ErrorKind.EXISTS: "42P07", ErrorKind.INVALID_FILTER: _SYNTAX, ErrorKind.INVALID_STATEMENT: _SYNTAX, ErrorKind.INVALID_NAME: "42602",
    ErrorKind.INVALID_SCHEMA: "42000", ErrorKind.INVALID_ROWS: "22000", ErrorKind.INVALID_KEY: "23000",
    ErrorKind.LOSSY_CAST: "22000", ErrorKind.ROW_EXISTS: "23505", ErrorKind.UNKNOWN_OPTION: "42616",
    ErrorKind.INVALID_OPTION: "42616", ErrorKind.UNSUPPORTED_OPTION: _UNSUPPORTED,
    ErrorKind.UNSUPPORTED_FORMAT: _UNSUPPORTED, ErrorKind.UNSUPPORTED_TYPE: _UNSUPPORTED, ErrorKind.STORAGE: "58030",
}  # fmt: skip
"""SQLSTATE of an error; of others it is the general one."""
_ASKING = {
    "parsePlan": "LogicalPlan plan = planned(a0); if (plan != null) return plan;",
    "parsePlanWithParameters": (
        "String text = substituted(a0, a1); LogicalPlan plan = text == null ? null : planned(text); "
        "if (plan != null) return plan;"
    ),
}
Statements = Callable[[str], DataFrame | None]
"""Takes the text of a statement, and returns its result; None for a statement that Spark shall run as it is."""


class _JavaFunction:
    """A `java.util.function.Function` that calls a function of Python."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def apply(self, argument: Any) -> Any:
        """Return what the function does."""
        return self._function(argument)

    class Java:
        """The attribute that py4j reads."""

        implements = ("java.util.function.Function",)


class StatementParser:
    """Puts functions of Python before the parser of a session, and of the sessions that are made of it.

    `statements`: returns, for a session, the function that takes the text of its statements.
    """

    def __init__(self, statements: Callable[[SparkSession], Statements]) -> None:
        self._statements = statements

    def inject(self, spark: SparkSession) -> bool:
        """Put it before a session's parser, unless it is there; False where this session's Spark does not allow it."""
        try:
            return self._inject(spark)
        except (*_RENAMED, PySparkException):
            # Another version, or a platform that hides its JVM: `lsm_engine.spark.sql` takes statements there.
            return False

    def _inject(self, spark: SparkSession) -> bool:
        gateway = spark.sparkContext._gateway  # noqa: SLF001 -- py4j's objects hang on it
        session: Any = spark._jsparkSession  # noqa: SLF001
        if not isinstance(gateway, ClientServer):
            # Without pinned threads a statement's jobs would run on another thread than the statement.
            return False
        state = session.sessionState()
        if _kind(state.sqlParser()) == _PARSER:
            return True
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        factory = _factory(gateway, _PARSER, _parser_source(gateway))
        sessions = _JavaFunction(
            lambda java: self._taking(SparkSession(spark.sparkContext, java), factory)
        )
        own = self._taking(spark, factory)
        parser = factory.parser(session, state.sqlParser(), sessions, own)
        # The session has its parser already, as a value that only reflection replaces.
        field = state.getClass().getDeclaredField("sqlParser")
        field.setAccessible(True)
        field.set(state, parser)
        session.extensions().injectParser(factory.builder(sessions))
        return True

    def _taking(self, spark: SparkSession, factory: Any) -> _JavaFunction:
        """Return what Java calls with the text of each statement of a session."""
        take = self._statements(spark)

        def answer(text: str) -> Any:
            try:
                frame = take(text)
            except PySparkException as error:
                origin = getattr(error, "_origin", None)
                text = str(error)
                if _OWN_NAME.search(text):
                    # The plan, the place in it and some suggestions are of the query that does the statement's work.
                    shown = _OWN_NAME.sub("", text.partition("; line ")[0])
                    return factory.refusal(
                        shown, error.getCondition(), error.getSqlState(), None, None
                    )
                return origin if origin is not None else refused(str(error), "LSM_STATEMENT")
            except LsmError as error:
                place = position_of(error, text)
                facts = "".join(f", {name}: {value!r}" for name, value in error.facts.items())
                is_known = isinstance(error, StatementError) and error.is_known
                state = _UNSUPPORTED if is_known else _STATES.get(error.kind, _STATE)
                return refused(error.message + facts, f"LSM_{error.kind.name}", state, *place)
            except Exception:  # noqa: BLE001 -- a defect: Java shows its place, as Python would
                return refused(traceback.format_exc(), "LSM_INTERNAL", "XX000")
            # The plan of what has run already: that of a command itself would run it a second time.
            return None if frame is None else frame._jdf.queryExecution().commandExecuted()  # noqa: SLF001

        def refused(message: str, condition: str, state: str = _STATE, *place: int) -> Any:
            line, column = place or (None, None)
            shown = f"[{condition}] {message}. SQLSTATE: {state}"
            return factory.refusal(shown, condition, state, line, column)

        return _JavaFunction(answer)


def _factory(gateway: Any, name: str, source: str) -> Any:
    """Return the factory of a class in Java, which Janino compiles."""
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    # py4j finds no class by its name that a loader of its own has.
    factory = compiler.getClassLoader().loadClass(f"{name}$Factory")
    return factory.getConstructors()[0].newInstance(gateway.new_array(jvm.java.lang.Object, 0))


def _parser_source(gateway: Any) -> str:
    """Return what stands before Spark's parser, with the methods of the ParserInterface of this Spark."""
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    methods = loader.loadClass(_INTERFACE).getMethods()
    declared = [method for method in methods if not method.toGenericString().count(" static ")]
    return _SOURCE % {
        "interface": _INTERFACE,
        "setting": STATEMENTS,
        "at_work": AT_WORK,
        "syntax": _SYNTAX,
        "refusal": _REFUSAL,
        "methods": "".join(map(_delegating, declared)),
    }


def _delegating(method: Any) -> str:
    """Return a method in Java that asks Spark's parser; of statements, the function of this process first."""
    name = method.getName()
    types = [kind.getCanonicalName() for kind in method.getParameterTypes()]
    thrown = [kind.getCanonicalName() for kind in method.getExceptionTypes()]
    declared = ", ".join(f"{kind} a{number}" for number, kind in enumerate(types))
    handed = ", ".join(f"a{number}" for number in range(len(types)))
    throws = f" throws {', '.join(thrown)}" if thrown else ""
    returned = method.getReturnType().getCanonicalName()
    return (
        f"  public {returned} {name}({declared}){throws} "
        f"{{ {_ASKING.get(name, '')} return spark.{name}({handed}); }}\n"
    )


# -- Reads of the format ---------------------------------------------------------------------------
#
# Spark tells a Python data source neither which columns a query needs nor, by default, its conditions. Its optimizer takes rules
# of users: this one puts a DataFrame of the columns that are needed in the place of each read of the format.

NEW_TABLE = (
    'Spark does not tell a Python data source which table of its catalog it writes to: use spark.sql("CREATE OR REPLACE '
    'TABLE … USING lsm AS SELECT …") instead of saveAsTable, create, replace and createOrReplace, and '
    "save(path) for rows of a table that is there"
)
"""Why rows go to no new table by its name. Said before Spark drops the name that they were to replace."""
Frames = Callable[[str], DataFrame | None]
"""Takes the facts of a read as JSON: options, schema, columns, conditions. Returns its rows; None to leave it to Spark."""


def plan_reads(spark: SparkSession, format_name: str, frames: Frames) -> bool:
    """Have a session's optimizer ask a function for the rows of each read of a format; False where it cannot."""
    try:
        gateway = spark.sparkContext._gateway  # noqa: SLF001 -- py4j's objects hang on it
        session: Any = spark._jsparkSession  # noqa: SLF001
        methods = session.experimental()
        rules = methods.extraOptimizations()
        if not isinstance(gateway, ClientServer):
            return False  # as for the parser
        if any(_kind(rule) == _READS for rule in _items(rules)):
            return True
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]

        def answer(facts: str) -> Any:
            frame = frames(facts)
            return None if frame is None else frame._jdf  # noqa: SLF001

        no_name = f"[LSM_INVALID_OPTION] {NEW_TABLE}. SQLSTATE: 42616"
        source = {"format": format_name, "refusal": _REFUSAL, "no_name": json.dumps(no_name)}
        factory = _factory(gateway, _READS, _READS_SOURCE % source)
        rule = factory.rule(session, _JavaFunction(answer))
        getattr(methods, "extraOptimizations_$eq")(rules.appended(rule))
    except (*_RENAMED, PySparkException):
        # Tasks in Python read the format, with all of its columns.
        return False
    return True
