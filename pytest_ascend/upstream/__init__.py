"""Run third-party tests written for any device, and compare their outcomes with those known from real NPUs."""
