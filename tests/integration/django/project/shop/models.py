from django.db import models


class Order(models.Model):
    paid_by = models.CharField(max_length=40, default="")

    def __str__(self):
        return f"order {self.pk}"
