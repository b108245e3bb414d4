t2t-datagen --t2t_usr_dir=$USR_DIR --data_dir=$DATA_DIR --tmp_dir=$TMP_DIR --problem=letters
t2t-trainer --t2t_usr_dir=$USR_DIR --data_dir=$DATA_DIR --problem=letters --model=transformer --hparams_set=transformer_test --train_steps=2 --eval_steps=1 --decode_hparams="beam_size=1,extra_length=1" --output_dir=$TRAIN_DIR
t2t-decoder --t2t_usr_dir=$USR_DIR --data_dir=$DATA_DIR --problem=letters --model=transformer --hparams_set=transformer_test --output_dir=$TRAIN_DIR --decode_hparams="beam_size=2,extra_length=3" --decode_from_file=$TMP_DIR/lines.txt --decode_to_file=$TRAIN_DIR/decoded.txt
