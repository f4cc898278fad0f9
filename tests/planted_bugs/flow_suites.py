"""Bugs of flows that tests of one part must see."""

from planted_bugs.bug import Edit, Promise, SuiteBug

FLOW_BUGS = (
    SuiteBug(
        "one edge that holds opens a step",
        Promise.BOUNDED_PATHS,
        "tests/unit/core/rules/test_flows.py",
        (
            Edit(
                "core/rules/flows.py",
                "    if all(held for held, _ in edges):",
                "    if any(held for held, _ in edges):",
            ),
        ),
    ),
    SuiteBug(
        "a step's end is not told to the steps behind it",
        Promise.BOUNDED_PATHS,
        "tests/store/memory/test_flow_model.py",
        (
            Edit(
                "store/memory/flows/fold.py",
                "            self._database.note_step(edge.step)\n",
                "            del edge\n",
            ),
        ),
    ),
    SuiteBug(
        "a fold forgets what it has left for later",
        Promise.BOUNDED_PATHS,
        "tests/store/memory/test_flow_model.py",
        (
            Edit(
                "store/memory/flows/fold.py",
                "        if has_more:\n            self._database.note_step(step.id)\n",
                "        if has_more:\n",
            ),
        ),
    ),
    SuiteBug(
        "a retry begins a step anew that has succeeded",
        Promise.FLOWS,
        "tests/store/memory/test_flow_model.py",
        (
            Edit(
                "core/rules/flows.py",
                "        elif step.state in {StepState.SKIPPING, StepState.SKIPPED}:\n",
                "        elif step.state is StepState.DONE:\n"
                "            anew[number] = StepState.CLOSED\n"
                "        elif step.state in {StepState.SKIPPING, StepState.SKIPPED}:\n",
            ),
        ),
    ),
    SuiteBug(
        "a retry forgets the hooks",
        Promise.FLOWS,
        "tests/store/memory/test_flow_model.py",
        (
            Edit(
                "core/rules/flows.py",
                "        anew.update(dict.fromkeys(hooks, StepState.CLOSED))\n",
                "        del hooks\n",
            ),
        ),
    ),
    SuiteBug(
        "a retry leaves what was canceled before its turn",
        Promise.FLOWS,
        "tests/unit/core/rules/test_flows.py",
        (
            Edit(
                "core/rules/flows.py",
                "if next_ is None or next_.state is StepState.READY:",
                "if next_ is None:",
            ),
        ),
    ),
    SuiteBug(
        "members that succeeded run again beside those that failed",
        Promise.FLOWS,
        "tests/store/memory/test_flow_model.py",
        (
            Edit(
                "store/memory/flows/retry.py",
                "if row.state in BAD and (chosen is None or row.id in chosen)",
                "if chosen is None or row.id in chosen",
            ),
        ),
    ),
    SuiteBug(
        "a step fails for members that were replaced",
        Promise.FLOWS,
        "tests/store/memory/test_flow_model.py",
        (
            Edit(
                "store/memory/flows/fold.py",
                "row.state in BAD and row.replaced_by is None",
                "row.state in BAD",
            ),
        ),
    ),
    SuiteBug(
        "a step fails for members that were replaced, in a database",
        Promise.FLOWS,
        "tests/store/contract/flows/test_retry.py",
        (
            Edit(
                "store/sqlite/sql/flows.sql",
                "WHERE b.step = s.id AND b.step IS NOT NULL AND b.replaced_by IS NULL",
                "WHERE b.step = s.id AND b.step IS NOT NULL",
            ),
        ),
    ),
    SuiteBug(
        "results of members that were replaced are read",
        Promise.FLOWS,
        "tests/store/memory/test_flow_model.py",
        (
            Edit(
                "store/memory/flows/reading.py",
                "                and jobs[job_id].replaced_by is None\n",
                "",
            ),
        ),
    ),
    SuiteBug(
        "a flow that is retried is still to end",
        Promise.FLOWS,
        "tests/store/contract/flows/test_retry.py",
        (
            Edit(
                "store/sqlite/sql/flow_retry.sql",
                "  ending = NULL,\n",
                "",
            ),
        ),
    ),
    SuiteBug(
        "what expired expires again in a retry",
        Promise.FLOWS,
        "tests/store/contract/flows/test_retry.py",
        (
            Edit(
                "store/sqlite/sql/flow_retry.sql",
                "  expires_at_ms = NULL,\n",
                "",
            ),
        ),
    ),
    SuiteBug(
        "pruning deletes a flow that was retried just then",
        Promise.FLOWS,
        "tests/store/postgres/test_flow_orders.py",
        (
            Edit(
                "store/operations/flows/pruning.py",
                "        again = old_flows(session, retention, now_ms, limit)\n",
                "        again = found\n",
            ),
        ),
    ),
    SuiteBug(
        "a retry does not wait for whoever holds the flow",
        Promise.FLOWS,
        "tests/store/postgres/test_flow_orders.py",
        (
            Edit(
                "store/operations/flows/retry.py",
                "        with self._database.writing() as session:\n"
                "            self._hold_flow(session, flow_id)\n",
                "        with self._database.writing() as session:\n",
            ),
        ),
    ),
    SuiteBug(
        "a job that is retried before its step's turn begins at once",
        Promise.FLOWS,
        "tests/store/contract/flows/test_alone.py",
        (
            Edit(
                "store/memory/flows/alone.py",
                "    if step is None or step.has_ended:\n        return row\n",
                "    if step is None or step.state is not step.state.SKIPPED:\n"
                "        return row\n",
            ),
        ),
    ),
    SuiteBug(
        "what was added is there twice after a retry",
        Promise.FLOWS,
        "tests/store/contract/flows/test_retry.py",
        (
            Edit(
                "store/sqlite/sql/flow_retry.sql",
                "AND j.replaced_by IS NULL AND j.added_by IS NULL\nORDER BY",
                "AND j.replaced_by IS NULL\nORDER BY",
            ),
        ),
    ),
    SuiteBug(
        "a step that somebody retries a job of begins beside what comes after it",
        Promise.FLOWS,
        "tests/store/contract/flows/test_retry_jobs.py",
        (
            Edit(
                "store/operations/flows/retry.py",
                'for job_id in session.rows("running_member", steps=after):',
                'for job_id in session.rows("running_member", steps="[]"):',
            ),
        ),
    ),
)
