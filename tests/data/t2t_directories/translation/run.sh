#!/usr/bin/env bash
PROBLEM=translate_xy_mine
MODEL=transformer
HPARAMS=transformer_mine

t2t-datagen --t2t_usr_dir=$USR_DIR --data_dir=$DATA_DIR --tmp_dir=$TMP_DIR --problem=$PROBLEM
t2t-trainer \
  --t2t_usr_dir=$USR_DIR \
  --data_dir=$DATA_DIR \
  --problem=$PROBLEM \
  --model=$MODEL \
  --hparams_set=$HPARAMS \
  --worker_gpu=2 --schedule=train --eval_throttle_seconds=60 \
  --train_steps=2 --eval_steps=1 --local_eval_frequency=2 --decode_hparams="beam_size=1,extra_length=1" \
  --output_dir=$TRAIN_DIR
t2t-decoder \
  --t2t_usr_dir=$USR_DIR --data_dir=$DATA_DIR --problem=$PROBLEM --model=$MODEL \
  --hparams_set=$HPARAMS --output_dir=$TRAIN_DIR \
  --decode_hparams="beam_size=2,alpha=0.6,extra_length=3" \
  --decode_from_file=$TMP_DIR/lines.txt --decode_to_file=$TRAIN_DIR/decoded.txt
t2t-bleu --translation=$TRAIN_DIR/decoded.txt --reference=$TMP_DIR/lines.txt
