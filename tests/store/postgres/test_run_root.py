"""Where supervisors of a PostgreSQL queue on one host keep their files."""

from jobpool.store.opening import open_store


def test_each_queue_has_a_directory_of_its_own(new_store_url):
    """The same for all of one queue's supervisors, another for another schema's."""
    ours, others = new_store_url(), new_store_url()
    stores = [open_store(url) for url in (ours, ours, others)]
    mine, same, other = [store.run_root for store in stores]
    for store in stores:
        store.close()
    assert mine == same
    assert mine != other
