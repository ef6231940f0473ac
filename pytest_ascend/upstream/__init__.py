"""Run tests that others wrote for any device, and compare what becomes of them with what is known of real NPUs."""
