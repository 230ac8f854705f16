import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
rows = torch.randint(0, 50, (64, 16), generator=torch.Generator().manual_seed(0))
texts = [{"input_ids": row, "labels": row[0] % 2} for row in rows]

bert = BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=2, **sizes))
args = TrainingArguments("checkpoints", num_train_epochs=1, per_device_train_batch_size=16, use_cpu=True, report_to=[])
Trainer(bert, args, train_dataset=texts).train()
