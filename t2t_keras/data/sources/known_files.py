"""Sizes and checksums of archives that several problems fetch."""

KNOWN_FILES: dict[str, tuple[int, str]] = {
    "http://data.statmt.org/wmt18/translation-task/rapid2016.tgz": (
        161050516,
        "41557dd5d8f0ed3a6d98bce3b798b1a9d3b68361eb99d902329ddbb943a6b55a",
    ),
    "http://data.statmt.org/wmt18/translation-task/training-parallel-ep-v8.tgz": (
        246201434,
        "953eaf7f24dcfc87eff6845d13ec6ca8acbee0ccf7edf4063b8b94e943933a96",
    ),
    "http://data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz": (
        113157482,
        "17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91",
    ),
    "http://www.statmt.org/wmt10/training-giga-fren.tar": (
        2595102720,
        "3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    ),
    "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz": (
        918311367,
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz": (
        657632379,
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "http://www.statmt.org/wmt13/training-parallel-un.tgz": (
        2365634246,
        "29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    ),
    "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz": (
        80418416,
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    "https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
    "paracrawl-release1.en-et.zipporah0-dedup-clean.tgz": (
        78283314,
        "1c3065a8e04a5a6d09d5d5c72ece8aeabcc418eb48cf85038bba6cdef638dc7d",
    ),
}
"""Bytes and SHA-256 by URL, as TensorFlow Datasets registers them for the same archives."""
