"""What is not a sum of products: element-wise work, reductions, windows, attention's softmax."""
