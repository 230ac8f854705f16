import torch
from accelerate import Accelerator
from mydata import train
from net import Net

accelerator = Accelerator(mixed_precision="bf16", cpu=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, train)
for inputs, target in loader:
    loss = torch.nn.functional.cross_entropy(model(inputs), target)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
accelerator.save_state("state")
