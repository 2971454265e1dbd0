"""Charged work: asked → accepted → charged → drawing → published → acknowledged → retired, or failed. Knows no kind."""
