"""`t2t-keras-query`: translates with a served model or a SavedModel.

Examples:
    t2t-keras-query --server=localhost:8500 --servable_name=ende --inputs_once="A sentence."
    t2t-keras-query --saved_model=served < source.en > translations

Give --server and --servable_name, or --saved_model.
"""

from __future__ import annotations

import io
import sys

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of T2T's query client, and two more."""
    options.define_problem()
    flags.DEFINE_string(
        "server",
        None,
        "TensorFlow Serving: HOST:PORT of its gRPC API, or http://HOST:PORT of its REST API.",
    )
    flags.DEFINE_string("servable_name", None, "Name of the served model.")
    flags.DEFINE_string(
        "saved_model", None, "Directory of a SavedModel to use instead of a server."
    )
    flags.DEFINE_string("signature_name", "serving_default", "Signature of the model to call.")
    flags.DEFINE_string(
        "inputs_once", None, "Text to translate; default: each line of standard input."
    )
    flags.DEFINE_integer("timeout_secs", 10, "Seconds before a request times out.", 1, 10**6)


def main(arguments: list[str]) -> None:
    """Translates the text of --inputs_once, or each line of standard input."""
    options.reject_arguments(arguments)
    check_where()
    encoders = find_encoders()

    from t2t_keras.serving import SavedModel, TextClient, connect

    path = options.directory("saved_model")
    if path or not FLAGS.server.startswith("http"):  # REST needs no TensorFlow
        options.import_tensorflow()
    if path:
        options.warn_unused("a SavedModel is called in this process", "timeout_secs")
    model = (
        SavedModel(path) if path else connect(FLAGS.server, FLAGS.servable_name, FLAGS.timeout_secs)
    )
    client = TextClient(model, FLAGS.signature_name, encoders)
    if not client.takes_examples:
        reason = f"signature {FLAGS.signature_name!r} takes text"
        options.warn_unused(reason, "problem", "data_dir", "t2t_usr_dir")
    if FLAGS.inputs_once is not None:
        answer(client, FLAGS.inputs_once)
    else:
        answer_lines(client)


def check_where() -> None:
    """Checks that either --server with --servable_name or --saved_model is given."""
    if FLAGS.saved_model and (FLAGS.server or FLAGS.servable_name):
        raise UserError("--saved_model replaces --server and --servable_name: give one.")
    if not FLAGS.saved_model and not FLAGS.server:
        raise UserError("give --server=HOST:PORT and --servable_name=NAME, or --saved_model=DIR.")
    if not FLAGS.saved_model:
        options.required("servable_name")


def find_encoders():
    """Returns the encoders of --problem; None if neither it nor --data_dir is given."""
    if not FLAGS.problem and not FLAGS.data_dir:
        return None
    problem = options.problem()
    return problem.get_feature_encoders(options.required("data_dir"))


def answer_lines(client) -> None:
    """Translates each line of standard input; an error ends the command unless input is a terminal."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # invalid UTF-8 reaches the model unchanged
    typed = sys.stdin.isatty()
    while True:
        try:
            line = input("> " if typed else "")
        except EOFError:
            return
        try:
            answer(client, line)
        except UserError as error:
            if not typed:
                raise
            print(error, file=sys.stderr)


def answer(client, text: str) -> None:
    """Prints hypotheses and scores, separated by tabs, in T2T's format."""
    [found] = client.translate([text])
    if found.truncated:
        print("too long: only the first part is translated", file=sys.stderr)
    fields = []
    for hypothesis, score in zip(found.texts, found.scores, strict=True):
        fields += [hypothesis.replace("\n", " ").replace("\t", " "), f"{score:.3f}"]
    print("\t".join(fields), flush=True)


def run() -> None:
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
