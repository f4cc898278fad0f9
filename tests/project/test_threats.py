"""The manual's table "Who can do what", and which test proves each line of it."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "src" / "jobpool" / "manual" / "threats.md"
PROOFS = {
    "a producer": (
        "integration/hostile/test_hostile_child.py::test_a_kind_that_is_no_name_is_refused",
        "integration/hostile/test_hostile_child.py::test_a_kind_leads_to_nothing_but_a_handler",
        "property/test_client_arguments.py",
        "property/test_hostile_input.py::test_an_arbitrary_command_line_ends_with_a_documented_code",
        "store/sqlite/test_errors.py::test_a_full_queue_is_not_counted_at_every_refusal",
        "unit/client/payload/published/test_checker.py::test_a_wrong_argument_is_refused_without_showing_values",
    ),
    "a handler, at `off`": (
        "integration/hostile/test_hostile_child.py::test_only_the_lying_job_is_charged",
        "integration/sandbox/test_deaths.py::test_kill_takes_the_whole_tree",
        "integration/hostile/test_impostor.py::test_a_handler_that_goes_on_after_its_end_is_found",
        "integration/hostile/test_impostor.py::test_no_job_waits_behind_a_handler_that_goes_on_after_its_end",
        "integration/hostile/test_thief.py::test_no_other_job_is_charged_for_stolen_tickets",
        "integration/hostile/test_thief.py::test_no_job_is_charged_for_a_damaged_mark",
        "integration/hostile/test_thief.py::test_a_ticket_cannot_be_put_back",
        "integration/hostile/test_thief.py::test_no_other_job_is_charged_for_a_handler_that_reports_its_end_and_then_dies",
        "integration/hostile/test_thief.py::test_no_job_is_ended_for_marks_that_another_wipes_out",
        "integration/cli/test_read.py::test_nothing_that_a_job_says_reaches_the_terminal_raw",
        "property/test_frames.py::test_arbitrary_bytes_only_ever_raise_frame_error",
        "property/test_hostile_input.py::test_a_damaged_stream_only_ever_raises_frame_error",
        "property/test_hostile_input.py::test_an_event_is_one_harmless_line",
        "unit/core/test_events.py::test_no_text_can_forge_a_line_or_reach_the_terminal",
    ),
    "a handler, at `standard`": (
        "integration/confinement/test_isolation.py::test_nothing_outside_is_signalled_or_written",
        "integration/confinement/test_isolation.py::test_calls_that_are_no_jobs_business_are_denied",
        "integration/confinement/test_isolation.py::test_no_program_gives_a_child_more_rights",
    ),
    "the same, with `write`, `network`, `env`": (
        "integration/confinement/test_isolation.py::test_files_are_written_only_where_the_pool_says",
        "integration/confinement/test_isolation.py::test_without_network_no_socket_leads_out",
        "integration/sandbox/test_state.py::test_the_environment_can_be_scrubbed",
    ),
    "a handler, at `strict`": (
        "integration/confinement/test_strict.py::test_it_sees_itself_and_its_init",
        "integration/confinement/test_strict.py::test_a_strict_child_sees_nothing_of_the_host_beyond_what_it_needs",
        "integration/confinement/test_strict.py::test_no_outside_process_is_signalled_traced_or_written",
        "integration/confinement/test_strict.py::test_only_named_variables_are_there",
        "integration/confinement/test_strict.py::test_the_store_is_covered_where_its_directory_is_shown",
    ),
    "who may write to the database": (
        "integration/hostile/test_hostile_child.py::test_a_kind_leads_to_nothing_but_a_handler",
        "property/test_hostile_input.py::test_an_arbitrary_published_schema_accepts_or_rejects",
        "store/sqlite/test_garbage.py::test_a_row_that_cannot_be_read_stops_no_other_job",
        "store/sqlite/test_extremes.py::test_a_runnable_row_out_of_range_stops_no_other_job",
    ),
    "another user of the machine": (
        "store/sqlite/test_files.py::test_a_new_store_is_private_to_its_owner",
        "integration/sandbox/test_identity.py::test_a_run_directory_is_private_and_names_its_supervisor",
        "integration/hostile/test_hostile_child.py::test_a_run_directory_is_private_to_its_owner",
    ),
    "a peer in PostgreSQL's network": (
        "store/postgres/test_roles.py::test_a_producer_cannot_forge_a_result",
    ),
}


def rows():
    """Return the parties named in the table."""
    _, _, section = PAGE.read_text("utf-8").partition("\n## Who can do what\n")
    table = section.partition("\n## ")[0]
    return re.findall(r"^\| (?!who \| |---)([^|]+?) \|", table, re.MULTILINE)


def test_each_line_of_the_table_is_proved():
    """Every line has a test, and every test a line."""
    assert rows() == list(PROOFS)


@pytest.mark.parametrize("proof", sorted({p for one in PROOFS.values() for p in one}))
def test_the_proof_exists(proof):
    """A test of that name exists in that file."""
    path, _, name = proof.partition("::")
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name in names or (not name and any(n.startswith("test_") for n in names))
