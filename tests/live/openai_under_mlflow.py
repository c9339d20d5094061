import mlflow
from scenario import openai_conversation, trace_to_service

trace_to_service()
mlflow.openai.autolog()
openai_conversation()
