-- The other call of a satellite is found by its time (exporter/satellites.py). A flush asks for tens of ids, and with so many
-- the bloom filters pass most granules: measured with 250,000 rows, they cost as much as they save, and each insert more.

ALTER TABLE spans DROP INDEX IF EXISTS response_id
;
