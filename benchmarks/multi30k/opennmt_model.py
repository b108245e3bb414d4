r"""The network of `transformer_multi30k` in OpenNMT-tf, for its `--model`.

The comparison of docs/results.md. Its pieces and its text, after the first commands there:

    import itertools, sentencepiece

    model = sentencepiece.SentencePieceProcessor(
        model_file="pieces/vocab.translate_files.sentencepiece"
    )
    ids = [i for i in range(len(model)) if not (model.is_control(i) or model.is_unknown(i))]
    with open("plain/pieces.vocab", "w") as file:
        print("<blank>", "<s>", "</s>", *map(model.id_to_piece, ids), sep="\n", file=file)
    for split, side in itertools.product(("train", "val", "test_2016_flickr"), ("en", "de")):
        with open(f"plain/{split}.{side}") as lines, open(f"plain/{split}.pieces.{side}", "w") as file:
            for line in lines:
                print(*model.encode(line.rstrip("\n"), out_type=str), file=file)

Training, with OpenNMT-tf in an environment of its own, and the outputs of both, greedy:

    onmt-main --model benchmarks/multi30k/opennmt_model.py --config benchmarks/multi30k/opennmt.yml --seed 1 train
    for step in 500 1000 1500; do  # and so on, to 3000, and of ours to 6500
        t2t-keras-decode --data_dir=pieces --checkpoint_path=tokenised/model.ckpt-$step \
            --decode_hparams=beam_size=1,extra_length=30 \
            --decode_from_file=plain/test_2016_flickr.en --decode_to_file=ours.$step
        onmt-main --model benchmarks/multi30k/opennmt_model.py --config benchmarks/multi30k/opennmt.yml \
            --checkpoint_path=opennmt/ckpt-$step infer --features_file plain/test_2016_flickr.pieces.en |
            sed 's/ //g; s/▁/ /g; s/^ //' > opennmt.$step
        for name in ours opennmt; do
            echo $step $(sacrebleu plain/test_2016_flickr.de -i $name.$step --tokenize none --force -b -w 2) >> $name.bleu
        done
    done
    python benchmarks/multi30k/curves.py beside.svg t2t_keras 0.52 ours.bleu OpenNMT-tf 0.63 opennmt.bleu
"""

import opennmt


def model():
    return opennmt.models.Transformer(
        opennmt.inputters.WordEmbedder(embedding_size=128),
        opennmt.inputters.WordEmbedder(embedding_size=128),
        num_layers=4,
        num_units=128,
        num_heads=4,
        ffn_inner_dim=256,
        dropout=0.3,
        attention_dropout=0.1,
        ffn_dropout=0.1,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )
