"""A source and a sink of Spark for RocketMQ, without a jar."""
