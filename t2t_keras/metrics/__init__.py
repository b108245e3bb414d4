"""Quality metrics: BLEU of translations, ROUGE of summaries, F1 of parse trees."""

from t2t_keras.metrics.bleu import Bleu, bleu, rouge
from t2t_keras.metrics.parsing_f1 import ParsedSentence, ParsingF1, ParsingFigures, parsing_f1

__all__ = ["Bleu", "ParsedSentence", "ParsingF1", "ParsingFigures", "bleu", "parsing_f1", "rouge"]
