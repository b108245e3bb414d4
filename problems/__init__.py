"""The built-in problems: importing this package registers them."""

from t2t_keras.problems import (  # noqa: F401
    parsing_gum,
    parsing_icelandic,
    parsing_wsj,
    text2text_tmpdir,
    translate_encs,
    translate_ende,
    translate_ende_numbers,
    translate_enes,
    translate_enet,
    translate_enfr,
    translate_enid,
    translate_enmk,
    translate_enro,
    translate_entn,
    translate_envi,
    translate_enzh,
    translate_files,
    translate_multi30k,
    translate_wmt14,
)
