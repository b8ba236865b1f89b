"""The models that training is measured on, as models.json has them: the one list that these programs and
training_step.cpp read. `input` is the shape of a rank's batch. Needs no torch."""
import json
import pathlib

MODELS = json.loads((pathlib.Path(__file__).resolve().parent / "models.json").read_text())
USUAL = [name for name, model in MODELS.items() if model["usual"]]  # what is measured unless others are asked for
