"""How good an answer is: graders, each a function of answer and reference."""
