import lightning
import torch
from mydata import train
from net import Net


class Mine(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


trainer = lightning.Trainer(max_steps=20, precision="bf16-mixed", accelerator="cpu", logger=False)
trainer.fit(Mine(), train)
