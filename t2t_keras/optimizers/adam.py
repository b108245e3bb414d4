"""T2T's variants of Adam. Keras's update adds epsilon outside the root, as TensorFlow 1 does."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from t2t_keras.errors import UserError
from t2t_keras.optimizers.slots import dense_gradient

_Variable = Any
_Array = Any


@keras.saving.register_keras_serializable("t2t_keras")
class Adam(keras.optimizers.Adam):
    """Adam (T2T's "true_adam", and "adam": LazyAdam, which is the same for T2T's dense gradients).

    The arguments are those of `keras.optimizers.Adam`.
    """

    slot_prefix = "Adam"

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable from its gradient."""
        super().update_step(dense_gradient(gradient, variable), variable, learning_rate)

    def t2t_slots(self) -> dict[str, list[_Variable | None]]:
        """Returns both moments of each variable, in order, by T2T's slot name."""
        return {
            self.slot_prefix: self.kept_for_variables("_momentum"),
            f"{self.slot_prefix}_1": self.kept_for_variables("_velocity"),
        }

    def kept_for_variables(self, ending: str) -> list[_Variable]:
        """Returns the optimizer's variables with this ending, in the order of the model's."""
        return [variable for variable in self.variables if variable.name.endswith(ending)]

    def t2t_scalars(self) -> dict[str, _Array]:
        """Returns T2T's other variables: both betas to the power of the next update's number, float32."""
        update = int(ops.convert_to_numpy(self.iterations)) + 1
        return {
            f"training/beta{i}_power": ops.convert_to_numpy(ops.cast(beta**update, "float32"))
            for i, beta in ((1, self.beta_1), (2, self.beta_2))
        }


@keras.saving.register_keras_serializable("t2t_keras")
class MultistepAdam(Adam):
    """Adam on the mean gradient of several batches (T2T's "multistep_adam").

    Each of these gradients is already divided by the tokens of its batch. The moments and the powers
    of beta count updates as steps; the learning rate counts batches, which `FactorSchedule` divides
    by `accumulate_steps`.

    The caller computes the mean: a training step that calls `update_step` with it, or Keras with the
    same number of `gradient_accumulation_steps`.

    Args:
        accumulate_steps: batches per update (T2T's `optimizer_multistep_accumulate_steps`).
        **kwargs: arguments of `keras.optimizers.Adam`.
    """

    def __init__(self, *, accumulate_steps: int, **kwargs):
        super().__init__(**kwargs)
        self.accumulate_steps = accumulate_steps

    def apply(self, grads, trainable_variables=None):
        """Accumulates a batch's gradients and updates at every n-th batch; Keras's `fit` calls it.

        Raises:
            UserError: Keras does not accumulate `accumulate_steps` gradients.
        """
        if self.accumulate_steps not in (1, self.gradient_accumulation_steps):
            raise UserError(
                f"this optimizer updates after every {self.accumulate_steps} batches "
                "(optimizer_multistep_accumulate_steps), but Keras would update after every "
                f"{self.gradient_accumulation_steps or 1}: for model.fit, create it with "
                f"gradient_accumulation_steps={self.accumulate_steps}"
            )
        super().apply(grads, trainable_variables)

    def t2t_slots(self) -> dict[str, list[_Variable | None]]:
        """Returns Adam's slots, and the sum of gradients if Keras accumulates them."""
        slots = super().t2t_slots()
        if self.gradient_accumulation_steps:
            slots["Adam_2"] = self.kept_for_variables("_gradient_accumulator")
        return slots

    def t2t_scalars(self) -> dict[str, _Array]:
        """Returns Adam's scalars, and `iter` if Keras counts batches: 0 before an updating batch."""
        scalars = super().t2t_scalars()
        if self.gradient_accumulation_steps:
            (batches,) = self.kept_for_variables("iteration")
            phase = (int(batches) + 1) % self.gradient_accumulation_steps
            scalars["training/iter"] = ops.convert_to_numpy(ops.cast(phase, "int32"))
        return scalars

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "accumulate_steps": self.accumulate_steps}


@keras.saving.register_keras_serializable("t2t_keras")
class AdamW(Adam):
    """Adam after a decay of every variable (T2T's "adam_w").

    Each update first reduces a variable by the fraction `decay`, independent of the learning rate
    (Keras's `AdamW` multiplies the two).

    Args:
        decay: T2T's `weight_decay`.
        **kwargs: arguments of `keras.optimizers.Adam`.
    """

    slot_prefix = "AdamW"

    def __init__(self, *, decay: float, **kwargs):
        super().__init__(**kwargs)
        self.decay = decay

    def update_step(self, gradient, variable, learning_rate):
        """Decays a variable and then updates it from its gradient."""
        self.assign_sub(variable, ops.multiply(variable, self.decay))
        super().update_step(gradient, variable, learning_rate)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "decay": self.decay}
