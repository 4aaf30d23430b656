"""The pretraining objectives, one file each; `register` adds another."""

from bert_jax.objectives.base import OBJECTIVES as OBJECTIVES
from bert_jax.objectives.base import Objective as Objective
from bert_jax.objectives.base import find_objective as find_objective
from bert_jax.objectives.base import objective_name as objective_name
from bert_jax.objectives.base import register as register
from bert_jax.objectives.clm_then_mlm import CausalThenMaskedLM as CausalThenMaskedLM
from bert_jax.objectives.hybrid import HybridLanguageModel as HybridLanguageModel
from bert_jax.objectives.ltr import LeftToRight as LeftToRight
from bert_jax.objectives.ltr_rtl import LeftToRightAndRightToLeft as LeftToRightAndRightToLeft
from bert_jax.objectives.mlm import MaskedLM as MaskedLM
from bert_jax.objectives.mlm_nsp import MaskedLMAndNSP as MaskedLMAndNSP
from bert_jax.objectives.mlm_sop import MaskedLMAndSOP as MaskedLMAndSOP
from bert_jax.objectives.rtd import ReplacedTokenDetection as ReplacedTokenDetection
from bert_jax.objectives.rtl import RightToLeft as RightToLeft
from bert_jax.objectives.span_boundary import MaskedLMAndSpanBoundary as MaskedLMAndSpanBoundary
