"""What every admin page of the project builds on: reading only, and bounded whatever the size of the table."""

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from wallet_project.kernel import clock

EMPTY = "-"
# How many rows a page shows of what belongs to its object; the list behind it has them all.
MOST_ROWS = 200
# How many objects one confirmation may cover: what somebody can still read through.
MOST_AT_ONCE = 50


class BackOffice(admin.AdminSite):
    """The site on which all apps register their pages."""

    site_title = "Wallet"
    site_header = "Wallet back office"
    index_title = "Wallet"
    site_url = None

    def get_urls(self) -> list[Any]:
        """Without the way to objects' public pages: they have none, and it stumbles over ids that are no UUID."""
        return [url for url in super().get_urls() if getattr(url, "name", None) != "view_on_site"]


class ReasonForm(forms.Form):
    """Why a member of staff does something; it stays with what was done."""

    reason = forms.CharField(max_length=140, widget=forms.TextInput(attrs={"size": 80}))


class BoundedPaginator(Paginator):  # type: ignore[type-arg]  # Django's own class takes none at runtime.
    """Counts no further than it has to: beyond the bound a list is for searching, not for leafing."""

    BOUND = 10_000

    object_list: QuerySet[Any]

    @cached_property
    def count(self) -> int:
        # Ids alone: columns that are computed for the list are not computed for the count.
        return self.object_list.order_by().values("pk")[: self.BOUND].count()

    @property
    def is_bounded(self) -> bool:
        """Whether there may be more than `count` says."""
        return self.count >= self.BOUND


class PeriodFilter(admin.SimpleListFilter):
    """Business days, half-open: a day begins at midnight in the business time zone and ends where the next begins."""

    title = f"day ({clock.business_zone().key})"
    parameter_name = "day"
    field = "created_at"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("today", "Today"), ("yesterday", "Yesterday"), ("week", "Last 7 days"), ("month", "Last 30 days")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        period = self._period()
        if period is None:
            return queryset
        since, until = (clock.start_of(day) for day in period)
        return queryset.filter(**{f"{self.field}__gte": since, f"{self.field}__lt": until})

    def _period(self) -> tuple[date, date] | None:
        """The first day, and the day after the last."""
        today = clock.business_date()
        tomorrow = today + timedelta(days=1)
        match self.value():
            case "today":
                return today, tomorrow
            case "yesterday":
                return today - timedelta(days=1), today
            case "week":
                return tomorrow - timedelta(days=7), tomorrow
            case "month":
                return tomorrow - timedelta(days=30), tomorrow
            case _:
                return None


class BoundedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # Django's own class takes none at runtime.
    """A page for a table of any size: no full count, no free sorting, no search but by what an index finds.

    A subclass that is searchable says what its box takes in `search_help_text`, and finds it in `found_by`.
    """

    list_per_page = 50
    list_max_show_all = 0
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    actions: tuple[str, ...] | None = None

    def found_by(self, term: str) -> Q | None:
        """The condition that finds what somebody searches for; None when there can be no such thing."""
        raise NotImplementedError

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return ("pk",) if self.search_help_text else ()  # Django shows the box when there are some.

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term or not self.search_help_text:
            return queryset, False
        condition = self.found_by(term)
        return (queryset.none() if condition is None else queryset.filter(condition)), False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """An id that is not spelled as we spell it, `1_000` or in other digits, is none."""
        found = None if "\0" in object_id else super().get_object(request, object_id, from_field)
        return found if from_field or str(getattr(found, "pk", "")) == object_id.lower() else None

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        if any("\0" in value for values in request.GET.lists() for value in [values[0], *values[1]]):
            raise SuspiciousOperation("NUL in the query string")
        actions = self.get_actions(request)
        if request.method == "POST" and not (actions and request.POST.get("action") in {"", *actions}):
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Nothing is ever deleted here; somebody who may look is told so."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Nothing is deleted here",
            "opts": self.opts,
            "list_url": list_url(self.model),
        }
        return TemplateResponse(request, "admin/not_deleted.html", context, status=403)


class ReadOnlyAdmin(BoundedAdmin):
    """Looking only, for everybody, superusers included."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


# --- What the columns show -------------------------------------------------------------------------------------------


def moment(value: datetime | None) -> str:
    """A time in the zone that the admin shows, with its offset and all its microseconds: order may hang on them."""
    return EMPTY if value is None else timezone.localtime(value).isoformat(sep=" ", timespec="microseconds")


def list_url(model: type[Model], **filters: object) -> str:
    """The address of a model's list, narrowed by lookups."""
    query = {name: str(value) for name, value in filters.items()}
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist", query=query)


def link_to_list(model: type[Model], text: str, **filters: object) -> SafeString:
    """A link to a model's list, narrowed by lookups."""
    return format_html('<a href="{}">{}</a>', list_url(model, **filters), text)


def link_to(model: type[Model], pk: object, text: object = None) -> SafeString | str:
    """A link to an object's page, by its id alone: no query."""
    if pk is None:
        return EMPTY
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[pk])
    return format_html('<a href="{}">{}</a>', url, pk if text is None else text)


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> SafeString:
    """A small table for a field of an object's page."""
    body = [(format_html_join("", "<td>{}</td>", ((cell,) for cell in row)),) for row in rows]
    if not body:
        return SafeString(EMPTY)
    return format_html(
        "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>",
        format_html_join("", "<th>{}</th>", ((heading,) for heading in headings)),
        format_html_join("", "<tr>{}</tr>", body),
    )


# --- What a search box is given --------------------------------------------------------------------------------------


def as_id(term: str) -> int | None:
    """A row's number in plain ASCII digits, as far as any number goes."""
    if not re.fullmatch("[0-9]{1,19}", term):
        return None
    return min(int(term), 2**63 - 1)


def any_of(**lookups: object) -> Q | None:
    """Any of the lookups that have a value; None when none has."""
    given = [Q((lookup, value)) for lookup, value in lookups.items() if value is not None]
    return reduce(or_, given) if given else None


def as_uuid(term: str) -> UUID | None:
    """A UUID in any of its spellings."""
    try:
        return UUID(term)
    except ValueError:
        return None
