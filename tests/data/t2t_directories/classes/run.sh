t2t-datagen --t2t_usr_dir=$USR_DIR --data_dir=$DATA_DIR --tmp_dir=$TMP_DIR --problem=which_is_longer
t2t-trainer --t2t_usr_dir=$USR_DIR --data_dir=$DATA_DIR --problem=which_is_longer --model=transformer_encoder --hparams_set=transformer_longer --train_steps=2 --eval_steps=1 --output_dir=$TRAIN_DIR
t2t-decoder --t2t_usr_dir=$USR_DIR --data_dir=$DATA_DIR --problem=which_is_longer --model=transformer_encoder --hparams_set=transformer_longer --output_dir=$TRAIN_DIR --decode_from_file=$TMP_DIR/lines.txt --decode_to_file=$TRAIN_DIR/decoded.txt
