"""Guards against what comes from outside: secrets stay unseen, hostile content inert, wrong definitions refused."""

from tests.guards.guard import Guard

GUARDS = (
    Guard(
        name="secret-hidden",
        promise="A secret does not show where settings are printed or logged.",
        path="include/tidemark/settings.py",
        old="    s3_secret_key: SecretStr = ",
        new='    s3_secret_key: type("Shown", (SecretStr,), {"__repr__": SecretStr.get_secret_value}) = ',
        tests=("tests/test_settings.py::test_printed_settings_never_show_a_secret",),
    ),
    Guard(
        name="private-files",
        promise="Only their owner can read files with settings and keys.",
        path="include/tidemark/stack/files.py",
        old="os.O_EXCL, 0o600)",
        new="os.O_EXCL, 0o644)",
        tests=("tests/test_stack.py::test_an_env_file_carries_any_path_and_replaces_the_old_one_privately",),
    ),
    Guard(
        name="no-secret-in-templates",
        promise="Airflow's rendered templates of a task show neither arguments nor variables.",
        path="include/tidemark/orchestration/operators.py",
        old='template_fields = ("application",)',
        new="template_fields = SparkSubmitOperator.template_fields",
        tests=("tests/dags/test_dags.py::test_spark_steps_are_submitted_and_show_no_settings_in_templates",),
    ),
    Guard(
        name="hostile-folder",
        promise="A value with path characters names one folder below the stream, and no other place.",
        path="include/tidemark/spark/paths.py",
        old="encoded = F.url_encode(text)",
        new="encoded = text",
        tests=("tests/spark/test_paths.py::test_every_text_has_a_folder_of_its_own_of_safe_characters",),
    ),
    Guard(
        name="page-escaped",
        promise="Content from outside is shown on a page, and never run.",
        path="include/tidemark/reconcile/report/page.py",
        old="autoescape=True,",
        new="autoescape=False,",
        tests=("tests/batch/test_report.py::test_a_hostile_writer_and_error_are_shown_and_not_run",),
    ),
    Guard(
        name="unknown-key-refused",
        promise="A key that a definition cannot have is refused, and not passed over.",
        path="include/tidemark/definitions/sections.py",
        old='model_config = ConfigDict(extra="forbid", frozen=True)',
        new='model_config = ConfigDict(extra="ignore", frozen=True)',
        tests=("tests/test_streams.py::test_an_unknown_key_is_refused_with_the_keys_its_level_allows",),
    ),
    Guard(
        name="key-given-twice",
        promise="A key that is given twice is refused; YAML's reader would take the last one.",
        path="include/tidemark/definitions/stream.py",
        old="if key in keys[:number]:",
        new="if False:",
        tests=("tests/test_streams.py::test_text_that_is_not_yaml_is_said_to_be_that_on_one_line",),
    ),
)
