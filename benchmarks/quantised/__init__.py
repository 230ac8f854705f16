"""int8 files of a trained CNN and a trained vision transformer in three formats: accuracy, milliseconds, size."""
