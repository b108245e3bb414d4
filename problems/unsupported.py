"""T2T's translation problems that are not here, and why: asking for one gives the reason."""

from t2t_keras.registry import register_unsupported_problems

_NAMES_BY_REASON = {
    "it cleans text by rules for English; generate the problem without 'clean' in its name, with "
    "--clean_max_ratio and its like": (
        "translate_ende_pc_clean32k",
        "translate_ende_wmt_clean32k",
        "translate_ende_wmt_clean_pc32k",
        "translate_ende_wmt_clean_pc_clean32k",
        "translate_ende_wmt_pc_clean32k",
        "translate_enes_wmt_clean32k",
    ),
    "its vocabulary is that of a language model of Wikipedia in four languages, which is not here": (
        "translate_ende_wmt_multi64k",
        "translate_ende_wmt_multi64k_packed1k",
        "translate_enfr_wmt_multi64k",
        "translate_enfr_wmt_multi64k_packed1k",
        "translate_enro_wmt_multi64k",
        "translate_enro_wmt_multi_small64k",
        "translate_enro_wmt_multi_tiny64k",
        "translate_enro_wmt_multi_tiny64k_packed1k",
    ),
    "its blocks of authentic and back-translated text are to be read in their order, and training "
    "here mixes all text": (
        "translate_encs_cubbitt",
        "translate_enfr_wmt32k_with_backtranslate_en",
        "translate_enfr_wmt32k_with_backtranslate_fr",
    ),
    "tensor2tensor names no files for it": ("translate_ende2018_wmt32k",),
}

register_unsupported_problems(
    {name: reason for reason, names in _NAMES_BY_REASON.items() for name in names}
)
