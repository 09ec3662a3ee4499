"""Twenty questions about Django, asked of its index one after the other as an agent would, with checked answers.

The answers were verified against the sources of the pinned version: line numbers may change with another one.
"""

import ast
import os
import shutil
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from llmc_mcp.errors import InvalidArgument, NotFound
from llmc_mcp.rag.query import maps
from llmc_mcp.tokens import estimate
from llmc_mcp.tools.enriched_search import rag_search_enriched
from llmc_mcp.tools.graph import Uses, rag_lineage, rag_where_used
from llmc_mcp.tools.inspect import inspect
from llmc_mcp.tools.plan import rag_bootload, rag_plan

from ..support.library import Library, library_on
from ..support.workspace import require
from .test_rag_understand import context

INDEXING_S = 100.0  # seconds: a busy machine may take ten times as long as an idle one

Place = tuple[str, int]


@pytest.fixture(scope="module")
def django(tmp_path_factory: pytest.TempPathFactory) -> Generator[Library]:
    found = find_spec("django")
    require(found is not None, "Django")
    assert found is not None
    assert found.origin is not None
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(Path(found.origin).parent, root / "django", ignore=shutil.ignore_patterns("locale", "__pycache__"))
    with library_on(root, tmp_path_factory.mktemp("data")) as library:
        (news,) = library.rag.refresh(None, False, library.caller(seconds=INDEXING_S))
        assert news is not None
        yield library


def places(found: Uses, library: Library, confidence: str = "exact", kind: str | None = None) -> list[Place]:
    rows = [row for row in found.items if row.confidence == confidence and kind in (None, row.kind)]
    return [(os.path.relpath(row.file, library.root).removeprefix("django/"), row.line) for row in rows]


def insides(found: Uses, kind: str | None = None) -> list[str | None]:
    return [row.inside for row in found.items if kind in (None, row.kind)]


def test_1_who_calls_model_save(django: Library) -> None:
    found = rag_where_used(context(django), "Model.save", limit=100)
    assert places(found, django, kind="call") == [
        ("contrib/auth/base_user.py", 65),
        ("contrib/sessions/backends/db.py", 127),
        ("contrib/sessions/backends/db.py", 153),
    ]
    assert ("views/generic/edit.py", 133) in places(found, django, "name_only")  # form.save(): of a form, or is it?
    assert found.completeness.files_parsed > 880


def test_2_what_does_this_migration_touch(django: Library) -> None:
    found = rag_lineage(context(django), "auth/migrations/0001_initial.py:Migration", "downstream", depth=1)
    assert {row.confidence for row in found.items} == {"exact"}
    assert set(insides(found)) == {
        *("Migration", "CreateModel", "AutoField", "CharField", "ForeignKey", "CASCADE", "ManyToManyField", "now"),
        *("PermissionManager", "GroupManager", "UserManager", "DateTimeField", "BooleanField", "EmailField"),
        "UnicodeUsernameValidator",
    }


def test_3_every_call_of_a_name_that_only_one_function_has(django: Library) -> None:
    found = rag_where_used(context(django), "import_string", limit=200)
    written: set[Place] = set()
    for path in (django.root / "django").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "import_string":
                written.add((os.path.relpath(path, django.root / "django"), node.func.lineno))
    assert len(written) > 40
    under_another_name = ("core/management/commands/shell.py", 178)  # import_string as import_dotted_path
    assert set(places(found, django, kind="call")) == written | {under_another_name}


def test_4_which_of_three_functions_called_get_connection_is_it(django: Library) -> None:
    found = rag_where_used(context(django), "django.db.transaction.get_connection")
    assert (found.total, found.counts) == (14, {"exact": 14})
    assert {path for path, _ in places(found, django)} == {"db/transaction.py"}
    mail = rag_where_used(context(django), "django.core.mail.get_connection")
    assert places(mail, django) == [
        ("core/mail/__init__.py", 37),  # in __all__
        ("core/mail/__init__.py", 81),
        ("core/mail/__init__.py", 110),
        ("core/mail/message.py", 260),
        ("core/mail/message.py", 263),
        ("utils/log.py", 7),
        ("utils/log.py", 143),
    ]


def test_5_who_loads_the_middleware(django: Library) -> None:
    found = rag_where_used(context(django), "BaseHandler.load_middleware")
    assert places(found, django) == [
        ("core/handlers/asgi.py", 152),
        ("core/handlers/wsgi.py", 118),
        ("test/client.py", 173),
        ("test/client.py", 224),
    ]


def test_6_what_does_model_save_call(django: Library) -> None:
    found = rag_lineage(context(django), "Model.save", "callees", depth=1)
    assert insides(found) == [
        "Model._parse_save_params",
        "Model._prepare_related_fields_for_save",
        "ConnectionRouter.db_for_write",
        "Model.save_base",
    ]


def test_7_what_leads_to_save_base(django: Library) -> None:
    found = rag_lineage(context(django), "Model.save_base", "callers", depth=2)
    direct = {row.inside for row in found.items if row.depth == 1}
    assert direct == {"DeserializedObject.save", "Model.save"}
    assert {row.inside for row in found.items if row.depth == 2} >= {"AbstractBaseUser.save", "SessionStore.save"}


def test_8_who_overrides_dispatch_and_calls_it_above(django: Library) -> None:
    found = rag_where_used(context(django), "View.dispatch")
    assert {row.inside for row in found.items if row.confidence == "exact"} >= {
        *("LoginView.dispatch", "LogoutView.dispatch", "PasswordResetView.dispatch", "BaseAdminDocsView.dispatch"),
        "View.as_view.view",
    }
    mixins = [row.inside for row in found.items if row.confidence == "name_only"]
    assert mixins == ["LoginRequiredMixin.dispatch", "PermissionRequiredMixin.dispatch", "UserPassesTestMixin.dispatch"]


def test_9_which_models_does_contrib_define(django: Library) -> None:
    found = rag_where_used(context(django), "django.db.models.Model", limit=200)
    heirs = {row.inside for row in found.items if row.kind == "inherit"}
    assert heirs >= {
        "LogEntry",
        "Permission",
        "Group",
        "ContentType",
        "FlatPage",
        "Redirect",
        "Site",
        "AbstractBaseUser",
    }
    assert {row.confidence for row in found.items if row.kind == "inherit"} == {"exact"}


def test_10_what_is_cached_property(django: Library) -> None:
    found = inspect(context(django), symbol="cached_property")
    assert found.docstring.startswith("Decorator that converts a method with a single self argument into a property")
    assert (os.path.relpath(found.path, django.root), found.kind) == ("django/utils/functional.py", "class")
    assert found.incoming_total > 250
    assert any("__set_name__" in line for line in found.defined_symbols)


def test_11_who_imports_the_module_of_time_zones(django: Library) -> None:
    found = inspect(context(django), path="django/utils/timezone.py")
    assert found.docstring == "Timezone-related classes and functions."
    assert found.incoming_total >= 30
    assert any(line.startswith("django/contrib/admin/models.py:") for line in found.incoming_calls)
    assert any(line.endswith("function now") for line in found.defined_symbols)


def test_12_a_method_that_a_class_only_inherits(django: Library) -> None:
    found = rag_where_used(context(django), "User.save")
    assert found.symbol == "AbstractBaseUser.save"
    assert places(found, django) == [("contrib/auth/base_user.py", 110)]


def test_13_who_rotates_the_csrf_token(django: Library) -> None:
    found = rag_where_used(context(django), "rotate_token")
    assert insides(found, "call") == ["login", "alogin"]


def test_14_who_logs_somebody_in_two_steps_back(django: Library) -> None:
    found = rag_lineage(context(django), "django.contrib.auth.login", "callers", depth=2)
    steps = {(row.inside, row.depth) for row in found.items if row.confidence == "exact"}
    assert steps >= {
        ("LoginView.form_valid", 1),
        ("RemoteUserMiddleware.process_request", 1),
        ("ClientMixin._login", 1),
        ("ClientMixin.force_login", 2),
    }


def test_15_who_connects_to_signals(django: Library) -> None:
    found = rag_where_used(context(django), "Signal.connect", limit=100)
    exact = places(found, django)
    assert {("contrib/auth/apps.py", 19), ("db/__init__.py", 52), ("core/handlers/base.py", 373)} <= set(exact)
    assert ("db/backends/postgresql/base.py", 332) not in exact  # Database.connect(): another kind of connection


def test_16_a_typing_mistake_gets_the_nearest_names(django: Library) -> None:
    with pytest.raises(NotFound) as caught:
        rag_where_used(context(django), "Model.svae")
    assert "save" in (caught.value.hint or "")


def test_17_a_name_that_too_many_things_have_gets_choices(django: Library) -> None:
    with pytest.raises(InvalidArgument) as caught:
        rag_where_used(context(django), "get")
    assert ".py:" in (caught.value.hint or "")


def test_18_where_is_the_code_behind_a_sentence(django: Library) -> None:
    found = rag_search_enriched(context(django), "rotate_token: change the CSRF token on login", limit=3)
    hit = next(row for row in found.snippets if row.src.startswith("django/middleware/csrf.py"))
    assert "rotate_token" in hit.text
    assert any(line.startswith("django/contrib/auth/__init__.py:") for line in hit.callers)


def test_19_where_would_a_task_start(django: Library) -> None:
    plan = rag_plan(context(django), "fix Model.full_clean validation error message")
    assert (plan.intent, plan.symbols) == ("fix", ["Model.full_clean"])
    assert os.path.relpath(plan.spans[0].path, django.root) == "django/db/models/base.py"
    boot = rag_bootload(context(django), "S", "fix-session-cookie-age")
    assert "contrib/sessions/" in boot.plan


def test_20_what_does_everything_lean_on(django: Library) -> None:
    ((ranked, _),) = django.rag.ask(maps.ranking, django.caller())
    drawn = maps.draw(ranked, 1_000)
    assert "settings = LazySettings()" in drawn
    assert "class QuerySet(" in drawn
    assert 500 < estimate(drawn) <= 1_000
    for name in ("class Field(", "class cached_property", "class ImproperlyConfigured", "class ValidationError"):
        assert name in drawn
