"""The JSON API: accounts, repositories and who may use them. Routes only; bodies and answers are JSON."""
