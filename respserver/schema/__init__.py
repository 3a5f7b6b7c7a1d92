"""The wire, typed once: items, requests, responses, events and their codec."""
