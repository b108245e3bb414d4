"""`t2t-keras-query`: translates with a served model or a SavedModel.

Examples:
    t2t-keras-query --server=host:8500 --servable_name=ende --inputs_once=Hi
    t2t-keras-query --saved_model=served < source.en > translations

Give --server and --servable_name, or --saved_model.
"""

import sys

from t2t_keras.cli import app, options
from t2t_keras.cli.options import FLAGS, positive, string
from t2t_keras.errors import UserError


def define_flags() -> None:
    options.define("problem", "data_dir", "t2t_usr_dir")
    string("server", "TensorFlow Serving: HOST:PORT of gRPC, or http://HOST:PORT of its REST API.")
    string("servable_name", "Name of the served model.")
    string("saved_model", "Directory of a SavedModel to use instead of a server.")
    string("signature_name", "Signature of the model to call.", default="serving_default")
    string("inputs_once", "Text to translate; default: each line of standard input.")
    positive("timeout_secs", 10, "Seconds before a request times out.", upper_bound=10**6)


def main() -> None:
    if FLAGS.saved_model and (FLAGS.server or FLAGS.servable_name):
        raise UserError("--saved_model replaces --server and --servable_name: give one.")
    if not FLAGS.saved_model and not FLAGS.server:
        raise UserError("give --server=HOST:PORT and --servable_name=NAME, or --saved_model=DIR.")
    if not FLAGS.saved_model:
        options.required("servable_name")
    encoders = None
    if FLAGS.problem or FLAGS.data_dir:
        encoders = options.problem().get_feature_encoders(options.required("data_dir"))

    from t2t_keras.serving import SavedModel, TextClient, connect

    path = options.directory("saved_model")
    if path or not FLAGS.server.startswith("http"):  # REST needs no TensorFlow
        options.import_tensorflow()
    if path:
        options.warn_unused("a SavedModel is called in this process", "timeout_secs")
    server = FLAGS.server, FLAGS.servable_name, FLAGS.timeout_secs
    model = SavedModel(path) if path else connect(*server)
    client = TextClient(model, FLAGS.signature_name, encoders)
    if not client.takes_examples:
        reason = f"signature {FLAGS.signature_name!r} takes text"
        options.warn_unused(reason, "problem", "data_dir", "t2t_usr_dir")
    if FLAGS.inputs_once is not None:
        answer(client, FLAGS.inputs_once)
    else:
        answer_lines(client)


def answer_lines(client) -> None:
    """Translates each line of standard input; an error ends the command unless input is a terminal."""
    for line in options.typed_lines():
        try:
            answer(client, line)
        except UserError as error:
            if not sys.stdin.isatty():
                raise
            print(error, file=sys.stderr)


def answer(client, text: str) -> None:
    """Prints hypotheses and scores, separated by tabs, as t2t-keras-decode does."""
    [found] = client.translate([text])
    if found.truncated:
        print("too long: only the first part is translated", file=sys.stderr)
    fields = []
    for hypothesis, score in zip(found.texts, found.scores, strict=True):
        fields += [hypothesis.replace("\n", " ").replace("\t", " "), f"{score:.3f}"]
    print("\t".join(fields), flush=True)


run = app.command(define_flags, main)

if __name__ == "__main__":
    run()
