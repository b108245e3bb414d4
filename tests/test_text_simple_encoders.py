"""Bytes and whole tokens as ids."""

import pytest

from t2t_keras.errors import UserError
from t2t_keras.text import ByteTextEncoder, TokenTextEncoder


def test_bytes_follow_the_reserved_ids():
    encoder = ByteTextEncoder()
    assert encoder.vocab_size == 258
    assert encoder.encode("aé\n") == [99, 0xC3 + 2, 0xA9 + 2, 12]
    assert encoder.decode([99, 197, 171, 12]) == "aé\n"
    assert encoder.decode([99, 1, 0, 197]) == "a<EOS><pad>\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("byte_id", [-1, 258])
def test_there_are_256_bytes(byte_id):
    with pytest.raises(UserError, match=f"id {byte_id} is out of range; 0 to 257"):
        ByteTextEncoder().decode([byte_id])


def test_tokens_of_a_file(tmp_path):
    path = tmp_path / "vocab"
    path.write_text("<pad>\n<EOS>\nthe\ncat\n<UNK>\n")
    encoder = TokenTextEncoder(path, replace_oov="<UNK>")
    assert encoder.vocab_size == 5
    assert encoder.encode(" the\tdog\ncat ") == [2, 4, 3]
    assert encoder.decode([2, 3, 1, 9]) == "the cat <EOS> ID_9"
    encoder.store_to_file(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_tokens_of_a_list_follow_the_reserved_ones():
    encoder = TokenTextEncoder(vocab_list=["<EOS>", "the", "cat"])
    assert encoder.encode("cat the <EOS>") == [3, 2, 1]


def test_unknown_tokens_need_a_replacement():
    with pytest.raises(UserError, match="Token 'dog' is not in the vocabulary of 3 tokens"):
        TokenTextEncoder(vocab_list=["cat"]).encode("cat dog")
    with pytest.raises(UserError, match="replace_oov is '<UNK>', which is not in"):
        TokenTextEncoder(vocab_list=["cat"], replace_oov="<UNK>")
    with pytest.raises(UserError, match="got no tokens"):
        TokenTextEncoder()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the\ncat\n", "vocab, line 1: got 'the'"),
        ("<pad>\n<EOS>\ncat\ncat\n", "vocab, line 4: 'cat' stands already in line 3"),
    ],
)
def test_refuses_what_is_no_vocabulary(tmp_path, content, message):
    path = tmp_path / "vocab"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        TokenTextEncoder(path)
