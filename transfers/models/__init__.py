"""What use cases keep beside the book."""

from transfers.models.notifications import Notification, NotificationQuerySet

__all__ = ["Notification", "NotificationQuerySet"]
