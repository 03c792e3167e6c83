"""Flips, truncations, zeroed pages and removed files: of caches, models, adapters and inputs."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from inbedder import InBedder
from inbedder.cache.database import DATABASE_FILE
from inbedder.cache.integrity import remove
from inbedder.cache.store import Store
from inbedder.errors import InputError, ModelError
from inbedder.io.tables import open_texts, read_table
from tests.faults.campaign import Fault, Kind, Lost, UndetectedError
from tests.faults.stage import FAMILIES, INSTRUCTION, Stage, check_vectors, damage, load, texts_of

PARTS = ("", "-wal", "-shm")
TEXTS = texts_of(80, seed=2)


class Damages:
    """Faults that are made to files, within this process."""

    def __init__(self, stage: Stage) -> None:
        """Make what is damaged: a cache as a killed run leaves it, its last entries in the log alone.

        Args:
            stage: The models and the inputs.
        """
        self.stage = stage
        self.model = load(stage.models["opt"])
        self.right = self.model.encode(TEXTS, INSTRUCTION)
        self.cache = stage.folder / "left-cache"
        cached_model = load(stage.models["opt"], stage.folder / "live-cache")
        cached_model.encode(TEXTS[:50], INSTRUCTION)
        with closing(sqlite3.connect(stage.folder / "live-cache" / DATABASE_FILE)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cached_model.encode(TEXTS[50:], INSTRUCTION)
        shutil.copytree(stage.folder / "live-cache", self.cache)
        with closing(sqlite3.connect(stage.folder / "live-cache" / DATABASE_FILE)) as connection:
            self.space = json.loads(connection.execute("SELECT about FROM spaces").fetchone()[0])
            self.entries = dict(connection.execute("SELECT key, data FROM entries"))

    def kinds(self) -> list[Kind]:
        """The kinds of faults, and how many of each."""
        return [
            Kind("damaged cache file", 400, self.damage_cache),
            Kind("damaged model file", 240, self.damage_model),
            Kind("damaged adapter file", 180, self.damage_adapter),
            Kind("damaged parquet, csv.gz or jsonl.gz", 300, self.damage_input),
        ]

    def damage_cache(self, fault: Fault) -> None:
        """Damage one of the files of a cache: a run with it gives the right vectors, and it is mended or removed."""
        folder = fault.folder / "cache"
        shutil.copytree(self.cache, folder)
        part = fault.draw.choice(PARTS)
        if part and fault.draw.random() < 0.2:
            (folder / (DATABASE_FILE + part)).unlink()
            fault.note(f"{DATABASE_FILE}{part}: remove")
        else:
            fault.note(damage(folder / (DATABASE_FILE + part), fault.draw))
        try:
            model = load(self.stage.models["opt"], folder)
        except InputError as error:
            fault.note(f"refused ({str(error)[:80]})")
            remove(folder / DATABASE_FILE)
        else:
            read_back = Store(folder).get(self.space, list(self.entries))
            if any(self.entries[key] != data for key, data in read_back.items()):
                raise UndetectedError("an entry is not what was kept")
            fault.note(f"{len(read_back)} of {len(self.entries)} entries found")
            check_vectors(model.encode(TEXTS, INSTRUCTION), self.right, "a run with the damaged cache")
            if model.pipeline.store is not None and model.pipeline.store.verify():
                model.pipeline.store.repair()
                if model.pipeline.store.verify():
                    raise Lost("cache verify --repair left damage")
        model = load(self.stage.models["opt"], folder)
        for _ in range(2):
            check_vectors(model.encode(TEXTS, INSTRUCTION), self.right, "a run after the cache was mended")
        if model.pipeline.store is None or model.pipeline.store.verify():
            raise Lost("the cache is damaged again after it was mended or removed")

    def damage_model(self, fault: Fault) -> None:
        """Damage one of the files of a model saved with checksums: it is refused, or gives the right vectors."""
        family = FAMILIES[fault.number % len(FAMILIES)]
        copy = fault.folder / "model"
        shutil.copytree(self.stage.models[family], copy)
        self._damage_folder(fault, copy)
        self._load(fault, copy, family)

    def damage_adapter(self, fault: Fault) -> None:
        """Damage one of the files of an adapter: it is refused, or gives the right vectors."""
        copy = fault.folder / "adapter"
        shutil.copytree(self.stage.adapter, copy)
        self._damage_folder(fault, copy)
        self._load(fault, copy, "adapter")

    def _damage_folder(self, fault: Fault, folder: Path) -> None:
        """The files take turns, so that each is damaged equally often."""
        files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "README.md")
        fault.note(damage(files[fault.number // len(FAMILIES) % len(files)], fault.draw))

    def _load(self, fault: Fault, folder: Path, name: str) -> None:
        try:
            model: InBedder = load(folder)
        except ModelError as error:
            fault.note(f"refused ({str(error)[:80]})")
            return
        fault.note(f"loaded as {name}")
        check_vectors(model.encode(self.stage.few, INSTRUCTION), self.stage.vectors[name], "the damaged model")

    def damage_input(self, fault: Fault) -> None:
        """Damage a table that has checksums inside: it is refused, or gives all of its texts."""
        source = self.stage.inputs[fault.number % len(self.stage.inputs)]
        copy = fault.folder / source.name
        shutil.copyfile(source, copy)
        fault.note(damage(copy, fault.draw))
        right = self.stage.texts[:300]
        try:
            read_back = read_table(str(copy), "text").texts
        except InputError:
            read_back = None
        try:
            with open_texts(str(copy), "text") as texts:
                streamed = [text for _, text in texts]
        except InputError:
            streamed = None
        for texts_found, reader in ((read_back, "read_table"), (streamed, "open_texts")):
            if texts_found is not None and texts_found != right:
                differing = sum(a != b for a, b in zip(texts_found, right, strict=False))
                raise UndetectedError(f"{reader} gave {len(texts_found)} texts, {differing} of them other ones than were written")
