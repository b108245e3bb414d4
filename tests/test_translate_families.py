"""T2T's translation problems: names, sources and sizes, as its files of 2020 to 2023 state them."""

import json
from pathlib import Path

import pytest

from t2t_keras import registry
from t2t_keras.data import SpaceID, VocabType
from t2t_keras.data.sources import KNOWN_FILES
from t2t_keras.errors import UserError
from t2t_keras.text import ByteTextEncoder

# Of each problem: the sources of train and dev (URL and files), the vocabulary's file (null: bytes), the
# length of packed rows, and the number of shards.
FACTS = json.loads(
    Path(__file__).with_name("data").joinpath("translate_families.json").read_text("utf-8")
)

UNSUPPORTED = {
    "cleans text by rules for English": """ende_pc_clean32k ende_wmt_clean32k ende_wmt_clean_pc32k
        ende_wmt_clean_pc_clean32k ende_wmt_pc_clean32k enes_wmt_clean32k""",
    "language model of Wikipedia": """ende_wmt_multi64k ende_wmt_multi64k_packed1k enfr_wmt_multi64k
        enfr_wmt_multi64k_packed1k enro_wmt_multi64k enro_wmt_multi_small64k
        enro_wmt_multi_tiny64k enro_wmt_multi_tiny64k_packed1k""",
    "back-translated": """encs_cubbitt enfr_wmt32k_with_backtranslate_en
        enfr_wmt32k_with_backtranslate_fr""",
    "names no files": "ende2018_wmt32k",
}


def test_every_problem_of_t2t_is_known():
    """Its documentation counts 51 that translate text."""
    assert len(FACTS) + sum(len(names.split()) for names in UNSUPPORTED.values()) == 51
    assert {f"translate_{name}" for name in FACTS} <= {*registry.list_problems()}


@pytest.mark.parametrize("name", FACTS)
def test_a_problem_is_that_of_t2t(name):
    facts, problem = FACTS[name], registry.problem(f"translate_{name}")
    for split in ("train", "dev"):
        found = [[url, *files] for url, files in problem.source_data_files(split)]
        assert found == facts[split]
    assert problem.vocab_filename == facts["vocabulary"]
    if facts["vocabulary"] is None:
        assert problem.vocab_type == VocabType.CHARACTER
        assert isinstance(problem.feature_encoders("")["inputs"], ByteTextEncoder)
    else:
        assert str(problem.approx_vocab_size) in facts["vocabulary"]
    assert problem.packed_length == facts["packed_length"]
    shards = {item["split"]: item["shards"] for item in problem.dataset_splits}
    assert shards == {"train": facts["train_shards"], "dev": 1}
    assert (problem.input_space_id, problem.target_space_id) == (SpaceID.GENERIC, SpaceID.GENERIC)
    assert problem.is_generate_per_split
    turned = registry.problem(f"translate_{name}_rev")
    assert turned.name == f"translate_{name}_rev"
    assert turned.dataset_filename() == f"translate_{name}"
    assert turned.vocab_filename == facts["vocabulary"]


def test_chinese_has_its_own_vocabulary():
    problem = registry.problem("translate_enzh_wmt8k")
    name = "vocab.translate_enzh_wmt8k.8192.subwords"
    assert problem.vocab_filenames == (f"{name}.en", f"{name}.zh")
    assert problem.vocab_file_budget == 1e8


@pytest.mark.parametrize("reason", UNSUPPORTED)
def test_a_problem_that_is_not_here_says_why(reason):
    for name in UNSUPPORTED[reason].split():
        for suffix in ("", "_rev"):
            with pytest.raises(UserError, match=f"'translate_{name}' of tensor2tensor.*{reason}"):
                registry.problem(f"translate_{name}{suffix}")
        assert f"translate_{name}" not in registry.list_problems()


def test_an_unsupported_name_is_suggested_too():
    with pytest.raises(UserError, match="Did you mean 'translate_encs_cubbitt'"):
        registry.problem("translate_encs_cubbit")


def test_checksums_are_of_files_that_problems_fetch():
    urls = {source[0] for facts in FACTS.values() for source in facts["train"] + facts["dev"]}
    assert {*KNOWN_FILES} <= urls
    for size, sha256 in KNOWN_FILES.values():
        assert size > 10_000_000
        assert len(bytes.fromhex(sha256)) == 32
