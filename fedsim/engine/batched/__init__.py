"""Jobs of many clients computed at once, each with the bits of the job computed alone.

A small net's kernels take less time than the Python around them, so a cohort of small fits is two to four
times as fast if stacked tensors ``[m, ...]`` replace m loops. The definition of every result is
:mod:`fedsim.engine.execute`, which computes one job; this package may only be faster.

Which jobs go this way (``kinds.py``, which gives jobs that can be computed together one key):

- on the CPU alone, since cuBLAS may choose a kernel by the number of matrices;
- nets of linear layers with ReLU between them (``linear``, ``mlp``, and what is above the convolutions of a
  net that is cut there). Convolutions of one client fill their kernels, LSTMs are fused kernels, and
  BatchNorm has running statistics, so these nets are trained one after the other. So are all other nets:
  stacking keeps no bits where a kernel computes the last values of a tensor by other instructions, as that of
  tanh does;
- fits whose step is a ``Descent`` on a loss that serves many (:func:`fedsim.engine.losses.serves_many`), with
  SGD or Adam, clipped or scheduled, and a correction that works element by element;
- predictions and evaluations, also of one model on many clients' samples.

How a fit gets there::

    executors/threads.py    keeps jobs of one key until somebody waits for one of them
    run_together.py         runs them; if they fail together, each by itself, so that the right one fails
    fit.py                  cuts them into tiles that fit the processor's cache, and trains a tile
    feed.py                 the batches of the clients of a tile at each step; small last ones may be padded
    losses.py               the losses of all, and their gradients with respect to logits
    dense_net.py            forward and backward passes of the stacked nets
    exact_products.py       the matrix products of a layer
    evaluation.py           the same for predictions and evaluations

Why the bits are equal. Elementwise operations round each value by itself. Sums and products of matrices add
up in an order that depends on shapes, memory layout and processor, so

1. each product is tried on random values for each shape and computed client by client where a bit differs
   (``exact_products.py``), and so is each padding of a batch;
2. a tile with shapes that are new to its kind is checked: its last clients are also trained alone, and a
   difference ends the computing together of that kind (``fit.py``, ``evaluation.py``);
3. ``--verify`` computes all jobs again, alone and with others (``run_together.py``).
"""
