"""Small corpora: files of lines, archives of them, shards, and the texts that shards hold."""

import gzip
import io
import tarfile
import zipfile

import tensorflow as tf

from t2t_keras.data.shards import find_shards, shard_paths

MODES = {".tgz": "w:gz", ".gz": "w:gz", ".bz2": "w:bz2", ".xz": "w:xz", ".tar": "w"}


class FullDisk(io.BytesIO):
    def __init__(self, path):
        super().__init__()

    def write(self, block):
        raise OSError(28, "No space left on device")

    writelines = write


def as_text(lines):
    return "".join(line + "\n" for line in lines).encode()


def write_lines(path, lines):
    """Writes each line with its end, compressed if the name says so; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_content(path, as_text(lines))


def write_content(path, content):
    """Writes bytes, compressed if the name says so; returns the path."""
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_archive(path, members):
    """Writes a zip or tar archive of contents by name, compressed as its own name says."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, MODES[path.suffix]) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_shards(directory, name, split, examples, shards=1):
    """Deals examples, {field: ids} each, to shards as TensorFlow writes them; returns their paths."""
    paths, examples = shard_paths(directory, name, split, shards), list(examples)
    for number, path in enumerate(paths):
        write_records(path, examples[number::shards])
    return paths


def write_records(path, examples):
    """Writes a shard as TensorFlow does; returns its serialised examples."""
    records = []
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            message = tf.train.Example()
            for field, ids in example.items():
                message.features.feature[field].int64_list.value.extend(ids)
            records.append(message.SerializeToString(deterministic=True))
            writer.write(records[-1])
    return records


def stored_examples(*paths):
    """The examples of shards, {field: ids} each."""
    for record in tf.data.TFRecordDataset([*map(str, paths)]).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        yield {field: list(feature.int64_list.value) for field, feature in features.items()}


def stored_texts(problem, split, data_dir):
    """The texts of all examples of a split, sorted: (inputs, targets) as the problem turns them."""
    encoders = problem.get_feature_encoders(data_dir)
    found = []
    for example in stored_examples(*find_shards(data_dir, problem.dataset_filename(), split)):
        ids = problem.orient(example)
        assert {row[-1] for row in ids.values()} == {1}
        found.append(tuple(encoders[side].decode(row[:-1]) for side, row in ids.items()))
    return sorted(found)
