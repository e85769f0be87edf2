"""Guards of what people write: wrong definitions are refused, by name, and stop nothing else."""

from tests.guards.guard import Guard

GUARDS = (
    Guard(
        name="profile-of-declared-nulls",
        promise="The profile of a new stream expects no null in a column that the value's schema declares NOT NULL.",
        path="include/tidemark/reconcile/audit/profile.py",
        old="    return {field.name for field in event.fields if not field.nullable}",
        new="    return {field.name for field in event.fields if not field.name}",
        tests=("tests/spark/test_definition.py::test_the_profile_expects_no_null_where_the_schema_declares_none",),
    ),
    Guard(
        name="history-of-a-figure",
        promise="A check against earlier days is refused if its column has no such figure: no run would judge it.",
        path="include/tidemark/reconcile/check_definition.py",
        old="        elif not measurable(expectation, kind, personal=personal):\n",
        new="        elif False:\n",
        tests=(
            "tests/spark/test_definition.py::test_a_check_against_history_of_a_column_without_that_figure_is_refused",
        ),
    ),
    Guard(
        name="column-of-another-stream",
        promise="A check that names a column which another stream's table has not is found before the first run.",
        path="include/tidemark/reconcile/check_definition.py",
        old="        if known and name not in known\n",
        new="        if False\n",
        tests=("tests/test_bad_definitions.py::test_a_column_that_another_stream_has_not_is_named_with_the_nearest",),
    ),
    Guard(
        name="no-random-schedule",
        promise="A schedule means the same times in every process.",
        path="include/tidemark/definitions/values.py",
        old="    if drawn := _CRON_DRAWN.search(value):",
        new="    if drawn := None:",
        tests=("tests/test_streams.py::test_a_wrong_value_is_named_with_what_is_allowed_and_what_was_found",),
    ),
    Guard(
        name="unknown-key-refused",
        promise="A key that a definition cannot have is refused, and not passed over.",
        path="include/tidemark/definitions/yaml_file.py",
        old="tuple(_without_unknown(node, schema, schema, ()))",
        new="tuple(_without_unknown(node, schema, schema, ()))[:0]",
        tests=("tests/test_streams.py::test_an_unknown_key_is_refused_with_the_keys_its_level_allows",),
    ),
    Guard(
        name="key-given-twice",
        promise="A key that is given twice is refused; YAML's reader would take the last one.",
        path="include/tidemark/definitions/yaml_file.py",
        old="if key in mapping:",
        new="if False:",
        tests=("tests/test_streams.py::test_text_that_is_not_yaml_is_said_to_be_that_on_one_line",),
    ),
    Guard(
        name="definition-name-checked",
        promise="A definition's name is checked before paths, keys and Airflow's ids are made of it.",
        path="include/tidemark/definitions/stream.py",
        old="        _NAME.validate_python(name)\n",
        new="        pass\n",
        tests=("tests/test_bad_definitions.py::test_a_name_is_checked_before_anything_is_made_of_it",),
    ),
    Guard(
        name="definition-size",
        promise="A definition that is too large is refused unread.",
        path="include/tidemark/definitions/yaml_file.py",
        old="            data = file.read(bytes_max + 1)\n",
        new="            data = file.read()[:bytes_max]\n",
        tests=("tests/test_bad_definitions.py::test_a_file_of_50_mb_is_refused_unread",),
    ),
    Guard(
        name="definition-bounds",
        promise="Aliases, deep nesting and too many values are refused before anything is built of them.",
        path="include/tidemark/definitions/yaml_file.py",
        old="        _require_bounded(text, path)\n",
        new="",
        tests=(
            "tests/test_bad_definitions.py::test_aliases_deep_nesting_and_too_many_values_are_refused_unread[keys]",
        ),
    ),
    Guard(
        name="unknown-value-unread",
        promise="The value of an unknown key is not looked into.",
        path="include/tidemark/definitions/yaml_file.py",
        old="        node.value = [(key, value) for key, value in pairs if _text(key) in known]\n",
        new="",
        tests=("tests/test_bad_definitions.py::test_an_unknown_key_is_refused_before_its_value_is_looked_into",),
    ),
    Guard(
        name="definition-conversion",
        promise="A value that YAML's converters refuse is named with its line, and ends in no traceback.",
        path="include/tidemark/definitions/yaml_file.py",
        old="        except Exception as error:  # PyYAML's",
        new="        except MemoryError as error:  # PyYAML's",
        tests=(
            "tests/test_bad_definitions.py::test_a_value_that_yaml_cannot_convert_names_file_line_and_reason[month 13]",
        ),
    ),
    Guard(
        name="definition-last-resort",
        promise="Whatever goes wrong with one definition is an error of that one.",
        path="include/tidemark/definitions/stream.py",
        old="    except Exception as error:  # one definition",
        new="    except MemoryError as error:  # one definition",
        tests=("tests/test_bad_definitions.py::test_whatever_else_is_wrong_with_one_definition_is_caught_for_it",),
    ),
    Guard(
        name="check-last-resort",
        promise="A stream whose check fails leaves the checks of other streams.",
        path="include/tidemark/cli/streams.py",
        old="            except Exception as error:  # noqa: BLE001 - the other",
        new="            except MemoryError as error:  # the other",
        tests=("tests/test_bad_definitions.py::test_a_stream_that_cannot_be_checked_leaves_the_check_of_others",),
    ),
    Guard(
        name="value-forms",
        promise="A JSON value has a documented form of its type, or its record is rejected.",
        path="include/tidemark/spark/decode.py",
        old=".isNotNull() | misfit, _misfit(",
        new=".isNotNull(), _misfit(",
        tests=("tests/spark/test_json_forms.py::test_the_page_lists_what_is_accepted_and_refused",),
    ),
    Guard(
        name="json-has-the-type",
        promise="A field of a type that JSON has no form for is refused when the definition is checked.",
        path="include/tidemark/spark/value_schema.py",
        old="    if refused := [*_refused(schema)]:",
        new="    if refused := []:",
        tests=(
            "tests/spark/test_column_types.py::test_a_field_that_json_has_no_form_for_is_refused_with_what_to_declare",
        ),
    ),
    Guard(
        name="table-has-the-type",
        promise="A column that Iceberg can't store is refused when the definition is checked.",
        path="include/tidemark/tables/schema_evolution.py",
        old="        if (hint := _unstorable(part)) is not None\n",
        new="        if (hint := None) is not None\n",
        tests=(
            "tests/spark/test_column_types.py::test_a_column_that_no_table_can_store_is_refused_with_what_to_write",
        ),
    ),
    Guard(
        name="avro-schemas-apart",
        promise="An earlier Avro schema whose records would be read as something else is refused.",
        path="include/tidemark/spark/avro.py",
        old="in misreadings(str(stream.avro_schema_file), AvroType.of(newest), types) if types else ():",
        new="in ():",
        tests=(
            (
                "tests/spark/test_avro_pairs.py"
                "::test_an_earlier_schema_whose_records_would_be_read_as_something_else_is_refused"
            ),
        ),
    ),
    Guard(
        name="avro-one-meaning",
        promise="A value that two Avro schemas read differently is rejected.",
        path="include/tidemark/spark/avro.py",
        old='F.when(same, first["event"])',
        new='first["event"]',
        tests=(
            (
                "tests/spark/test_avro_pairs.py"
                "::test_a_value_that_two_schemas_read_differently_is_rejected_and_never_guessed"
            ),
        ),
    ),
    Guard(
        name="one-parser",
        promise="The event time of a value is read by the parser of its columns.",
        path="include/tidemark/spark/records.py",
        old="json_field(value, path)",
        new="F.get_json_object(value, path)",
        tests=("tests/spark/test_records.py::test_the_last_time_of_a_repeated_name_is_the_event_time",),
    ),
    Guard(
        name="unreadable-times-checked",
        promise="A day with too many times that can't be read does not pass unseen.",
        path="include/tidemark/reconcile/audit/checks.py",
        old="success=not rows or unreadable / rows <= wanted.unreadable_alarm_share,",
        new="success=True,",
        tests=(
            (
                "tests/batch/test_audit.py"
                "::test_a_day_passes_with_at_most_the_share_of_times_that_can_not_be_read[0-1000000-1-False]"
            ),
        ),
    ),
    Guard(
        name="unreadable-times-rejected",
        promise="Where a stream asks for it, a record whose time field can't be read is rejected.",
        path="include/tidemark/spark/decode.py",
        old="        reason = F.coalesce(reason, F.col(_UNREADABLE))\n",
        new="        pass\n",
        tests=(
            (
                "tests/batch/test_unreadable_times.py"
                "::test_a_day_with_too_many_times_that_can_not_be_read_says_so_and_rejects_them_if_asked[reject]"
            ),
        ),
    ),
    Guard(
        name="times-in-the-calendar",
        promise="A row with a time that Python and Iceberg can't hold is rejected after the transformation.",
        path="include/tidemark/spark/process.py",
        old="    reason = F.coalesce(reason, *_outside(rows, own))\n",
        new="",
        tests=(
            (
                "tests/spark/test_json_forms.py"
                "::test_a_time_that_python_cannot_hold_is_rejected_after_the_transformation[TIMESTAMP]"
            ),
        ),
    ),
    Guard(
        name="dag-last-resort",
        promise="A definition that Airflow refuses leaves the DAGs of other streams.",
        path="include/tidemark_airflow/reconcile_dag.py",
        old="    except Exception as error:  # one stream",
        new="    except MemoryError as error:  # one stream",
        tests=("tests/dags/test_dags.py::test_a_definition_that_airflow_refuses_has_a_dag_that_says_why",),
    ),
)
