"""The rules of section 'Security' in docs/serve.md, one after the other."""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from inspect import signature
from ipaddress import ip_address
from pathlib import Path

import pytest
from PIL import Image
from starlette.testclient import TestClient
from tests.server.conftest import PORT, N, signed_in, stranger
from tests.sources import parsed

import samekind.server.security as auth
from samekind import cli
from samekind.errors import SettingError
from samekind.server.app import ROUTES
from samekind.server.app_state import AppState
from samekind.server.routing import Route
from samekind.server.security import Credentials
from samekind.server.serve import ServeConfig, open_socket, serve
from samekind.server.session import Session

SOURCE = Path(auth.__file__).parent
ADDRESS = {"id": "1", "job": "abc", "version": "1"}


def address(route: Route) -> str:
    return re.sub(r"{(\w+)}", lambda part: ADDRESS[part[1]], route.path)


def test_by_default_it_listens_on_this_machine_only() -> None:
    for host in (ServeConfig(Path("run")).host, signature(cli.serve).parameters["host"].default):
        with open_socket(host, 0) as listening:
            assert ip_address(listening.getsockname()[0]).is_loopback


def test_another_address_needs_the_name_that_people_will_type(run: Path) -> None:
    with pytest.raises(SettingError, match="--allow-host"):
        serve(ServeConfig(run, host="0.0.0.0"), print, print)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "LOCALHOST:8000", "localhost", "[::1]:9", "127.0.0.1"])
def test_it_accepts_its_own_host_names(calm: AppState, host: str) -> None:
    assert stranger(calm).get("/api/run", headers={"host": host}).status_code == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.nip.io", "0.0.0.0", "a@localhost", "", "localhost:8000:1", "localhost.", "[::1", ":8000"],
)
def test_it_refuses_other_host_names(calm: AppState, host: str) -> None:
    for path in ("/", "/static/main.js", "/api/run", "/img/0/thumb"):
        assert signed_in(calm).get(path, headers={"host": host}).status_code == 400


def test_it_accepts_an_allowed_host_name(run: Path) -> None:
    state = AppState(Session(run), Credentials(PORT, auth.allowed_hosts(["Box.local"])))
    assert stranger(state).get("/api/run", headers={"host": "box.local:8000"}).status_code == 401
    state.close()


def test_starlette_is_new_enough_and_paths_are_never_made_of_headers() -> None:
    assert tuple(int(part) for part in version("starlette").split(".")[:2]) >= (1, 1)
    assert not any("request.url" in path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_without_a_login_every_route_is_refused(calm: AppState, route: Route) -> None:
    client = stranger(calm)
    client.headers.update({"origin": f"http://127.0.0.1:{PORT}", "x-samekind": "1"})
    response = client.request(route.method, address(route), json={} if route.method != "GET" else None)
    assert response.status_code == (422 if route.options.public else 401)


def test_the_empty_page_needs_no_login_and_holds_no_data(calm: AppState) -> None:
    response = stranger(calm).get("/")
    assert response.status_code == 200
    assert calm.credentials.token not in response.text and "roll0" not in response.text


def test_a_wrong_token_gives_no_login(calm: AppState) -> None:
    other = "y" if calm.credentials.token[0] == "x" else "x"
    assert signed_in(calm).post("/api/login", json={"token": other + calm.credentials.token[1:]}).status_code == 401
    assert stranger(calm).get("/api/run", headers={"authorization": "Bearer nonsense"}).status_code == 401


def test_a_one_time_token_works_once(calm: AppState) -> None:
    token = calm.credentials.one_time_token()
    client = signed_in(calm)
    assert client.post("/api/login", json={"token": token}).status_code == 204
    assert client.post("/api/login", json={"token": token}).status_code == 401


def test_a_one_time_token_expires(state: AppState, monkeypatch: pytest.MonkeyPatch) -> None:
    token = state.credentials.one_time_token()
    later = time.monotonic() + auth.ONE_TIME_SECONDS + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert signed_in(state).post("/api/login", json={"token": token}).status_code == 401


def test_the_cookie_is_for_this_server_alone_and_not_for_scripts(calm: AppState) -> None:
    client = signed_in(calm)
    cookie = client.post("/api/login", json={"token": calm.credentials.token}).headers["set-cookie"]
    assert cookie.startswith(f"samekind_{PORT}=") and "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert f"Path={calm.credentials.page_path}" in cookie and len(calm.credentials.page_path) > 40


def test_the_cookie_alone_opens_nothing_without_the_path_of_the_page(calm: AppState) -> None:
    cookie = {"cookie": f"{calm.credentials.cookie}={calm.credentials.log_in(calm.credentials.token)}"}
    path = calm.credentials.page_path
    for prefix in ("", "/s-", "/s-x", path[:-1], path + "x", "/" + path, path.upper(), path + "/.."):
        assert stranger(calm).get(f"{prefix}/api/run", headers=cookie).status_code in (401, 404)
        assert stranger(calm).get(f"{prefix}/img/0/thumb", headers=cookie).status_code in (401, 404)
    assert stranger(calm).get(f"{path}/api/run", headers=cookie).status_code == 200
    assert stranger(calm).get(f"{path}/api/run").status_code == 401


def test_odd_cookies_of_other_servers_on_this_machine_do_not_hide_ours(calm: AppState) -> None:
    session = calm.credentials.log_in(calm.credentials.token)
    for odd in ('a={"b": 1}', "=", "x y=z;;", "[bad]=1"):
        assert (
            stranger(calm)
            .get(
                f"{calm.credentials.page_path}/api/run",
                headers={"cookie": f"{odd}; {calm.credentials.cookie}={session}"},
            )
            .status_code
            == 200
        )


def test_a_cookie_of_an_earlier_start_is_refused(state: AppState) -> None:
    old = signed_in(state)
    state.credentials = Credentials(PORT)
    after_restart = stranger(state)
    after_restart.cookies, after_restart.base_url = old.cookies, old.base_url
    assert after_restart.get("/api/run").status_code == 401
    cookie = {"cookie": f"{state.credentials.cookie}={next(iter(old.cookies.values()))}"}
    assert stranger(state).get(f"{state.credentials.page_path}/api/run", headers=cookie).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9301"},
        {"origin": "http://evil.example"},
        {"origin": f"http://localhost:{PORT}"},
        {"origin": ""},
        {"x-samekind": "0"},
        {"x-samekind": ""},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
    ],
    ids=str,
)
def test_a_write_from_anywhere_else_is_refused(state: AppState, browser: TestClient, headers: dict[str, str]) -> None:
    sent = {"content-type": "application/json", **headers}
    body = b'{"op": "clear", "ids": [0]}'
    assert browser.post("/api/labels", content=body, headers=sent).status_code == 403
    assert state.session.store.states.status[0] == 1
    assert browser.post("/api/labels", content=body, headers={"content-type": "application/json"}).status_code == 200


def test_a_write_without_an_origin_is_refused(browser: TestClient) -> None:
    del browser.headers["origin"]
    assert browser.post("/api/labels", json={"op": "clear", "ids": [0]}).status_code == 403


def test_a_program_with_the_token_needs_no_origin_but_must_not_have_a_foreign_one(calm: AppState) -> None:
    program = stranger(calm)
    program.headers["authorization"] = f"Bearer {calm.credentials.token}"
    assert program.post("/api/items", json={"ids": [0]}).status_code == 200
    assert program.post("/api/items", json={"ids": [0]}, headers={"origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_other_site_is_ever_allowed_to_read(calm_browser: TestClient, route: Route) -> None:
    for method in (route.method, "OPTIONS"):
        response = calm_browser.request(method, address(route), headers={"access-control-request-method": "POST"})
        assert not [name for name in response.headers if name.startswith("access-control")]
        assert method == route.method or response.status_code in (403, 405)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_images_are_not_shown_inside_other_pages(calm_browser: TestClient, site: str) -> None:
    own = calm_browser.get("/img/0/thumb")
    assert own.status_code == 200 and own.headers["cross-origin-resource-policy"] == "same-origin"
    assert calm_browser.get("/img/0/thumb", headers={"sec-fetch-site": site}).status_code == 403


@pytest.mark.parametrize(
    "path", ["/", "/api/run", "/img/0/thumb", "/img/99/thumb", "/nothing", "/api/nothing", "/static/no.js"]
)
def test_every_response_has_the_protecting_headers(calm_browser: TestClient, path: str) -> None:
    headers = calm_browser.get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "require-trusted-types-for 'script'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "item",
    [
        "-1",
        str(N),
        str(2**31),
        str(2**63),
        "1e3",
        "0x1",
        "%00",
        "..%2f..%2fetc%2fpasswd",
        "..",
        "%5c%5chost%5cshare",
        "0%00",
        "٣",
    ],
)
def test_files_are_found_by_item_id_only(calm_browser: TestClient, item: str) -> None:
    for view in ("thumb", "full"):
        assert calm_browser.get(f"/img/{item}/{view}").status_code == 404


@pytest.mark.parametrize(
    "name", ["..%2fapp.py", "%2e%2e/app.py", "..%5capp.py", "app.py", "%00", "index.html%00.js", "../app.py"]
)
def test_nothing_beside_the_static_files_is_served(calm_browser: TestClient, name: str) -> None:
    assert calm_browser.get(f"/static/{name}").status_code == 404


def test_a_symlink_out_of_the_folder_is_refused(browser: TestClient, run: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (8, 8)).save(secret)
    image_file = run.parent / "photos" / "roll0" / "00.png"
    image_file.unlink()
    image_file.symlink_to(secret)
    assert browser.get("/img/0/full").status_code == 404
    image_file.unlink()
    assert browser.get("/img/0/full").status_code == 404
    os.mkfifo(image_file)
    assert browser.get("/img/0/full").status_code == 404
    (item,) = browser.post("/api/items", json={"ids": [0]}).json()["items"]
    assert "does not exist" in item["error"]


def bomb() -> bytes:
    """Return a PNG of 60000 x 60000 pixels in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def cut_short() -> bytes:
    blob = io.BytesIO()
    Image.effect_noise((200, 200), 50).save(blob, "JPEG")
    return blob.getvalue()[:2000]


@pytest.mark.parametrize(
    "blob", [bomb(), cut_short(), b"<html><script>alert(1)</script></html>", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b""]
)
def test_a_file_that_is_not_an_image_becomes_a_tile(browser: TestClient, run: Path, blob: bytes) -> None:
    (run.parent / "photos" / "roll0" / "00.png").write_bytes(blob)
    for view in ("thumb", "full"):
        response = browser.get(f"/img/0/{view}")
        assert response.status_code == 200 and response.headers["content-type"] in ("image/png", "image/jpeg")
        Image.open(io.BytesIO(response.content)).load()
    assert browser.get("/api/run").status_code == 200


def test_no_metadata_of_an_image_is_sent(browser: TestClient, run: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    exif.get_ifd(0x8825)[1] = "N"
    exif[0x010E] = "a secret place"
    Image.effect_noise((400, 300), 30).convert("RGB").save(run.parent / "photos" / "roll0" / "00.png", "JPEG", exif=exif)
    for view in ("thumb?size=256", "full"):
        blob = browser.get(f"/img/0/{view}").content
        image = Image.open(io.BytesIO(blob))
        assert b"secret place" not in blob and not image.getexif()
        assert image.height > image.width


# ---------------------------------------------------------------- limits, errors, what is on the disk


def test_requests_that_are_too_large_are_refused(calm_browser: TestClient) -> None:
    assert (
        calm_browser.post(
            "/api/items", content=b" " * (1 << 20) + b"{}", headers={"content-type": "application/json"}
        ).status_code
        == 413
    )
    assert calm_browser.post("/api/items", json={"ids": list(range(501))}).status_code == 422
    assert calm_browser.post("/api/labels", json={"op": "clear", "ids": [0] * 10_001}).status_code == 422


def test_a_streamed_body_that_is_too_large_is_refused_too(calm_browser: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 65536

    response = calm_browser.post("/api/items", content=parts(), headers={"content-type": "application/json"})
    assert response.status_code == 413


def test_a_body_of_unknown_length_needs_a_type_as_well(calm_browser: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"op": "clear", "ids": [0]}'

    assert calm_browser.post("/api/labels", content=parts(), headers={"content-type": "text/plain"}).status_code == 403


def test_a_server_error_reveals_nothing_about_the_machine(
    state: AppState, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(f"at {state.session.run}")

    monkeypatch.setattr("samekind.server.routes.items.summarize_item", broken)
    response = browser.post("/api/items", json={"ids": [0]})
    assert response.status_code == 500 and response.headers["content-type"] == "application/problem+json"
    assert "Traceback" not in response.text and str(state.session.run) not in response.text


def test_only_the_owner_reads_the_labels(run: Path) -> None:
    shutil.rmtree(run / "serve")
    before = os.umask(0)  # every permission that is not removed is granted
    try:
        Session(run).close()
    finally:
        os.umask(before)
    assert (run / "serve").stat().st_mode & 0o777 == 0o700
    (backup,) = (run / "serve" / "backups").iterdir()
    for file in (run / "serve" / "labels.sqlite", run / "serve" / "labels.csv", backup):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_read_only_server_refuses_every_write(run: Path) -> None:
    state = AppState(Session(run, read_only=True), Credentials(PORT))
    browser = signed_in(state)
    writes = [route for route in ROUTES if route.options.writes]
    assert len(writes) > 8
    for route in writes:
        assert browser.request(route.method, address(route), json={}).status_code == 403
    state.close()


def test_a_read_only_server_writes_nothing(run: Path) -> None:
    def files() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and "sqlite-" not in path.name}

    Session(run).close()
    before = files()
    state = AppState(Session(run, read_only=True), Credentials(PORT))
    browser = signed_in(state)
    for path in ("/api/run", "/api/order", "/api/map", "/img/0/thumb", "/img/0/full", "/api/export?what=both", "/api/items/3"):
        assert browser.get(path).status_code == 200
    state.close()
    assert files() == before


@pytest.mark.parametrize("body", [b'{"op": "clear", "ids": [0], "request_id": "\\ud800"}', b'{"op": "\\udfff", "ids": [0]}'])
def test_half_of_a_surrogate_pair_is_refused(calm_browser: TestClient, body: bytes) -> None:
    assert calm_browser.post("/api/labels", content=body, headers={"content-type": "application/json"}).status_code == 422


def test_every_route_that_changes_something_is_marked_as_a_write() -> None:
    reading = {"/api/login", "/api/items", "/api/similar", "/api/v1/predict", "/api/v1/neighbors", "/api/v1/similarity"}
    assert {route.path for route in ROUTES if route.method != "GET" and not route.options.writes} == reading


def test_no_file_format_that_can_run_code_is_read() -> None:
    for path in SOURCE.rglob("*.py"):
        tree = parsed(path)
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {"pickle", "joblib", "dill", "marshal", "shelve"} & names
        loads = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "torch.load")
        ]
        assert all("allow_pickle=False" in ast.unparse(request) for request in loads)


def test_the_server_connects_to_nowhere(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    for path in ("/", "/api/run", "/api/order", "/api/items/3", "/img/3/thumb"):
        assert browser.get(path).status_code == 200


def test_the_token_is_in_no_log(calm: AppState, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    client = signed_in(calm)
    client.post("/api/login", json={"token": calm.credentials.token, "more": 1})
    client.get("/api/run", headers={"host": "evil.example"})
    assert calm.credentials.token not in caplog.text


def test_names_of_files_and_classes_are_sent_as_text_and_never_as_html(browser: TestClient) -> None:
    evil = "<img src=x onerror=alert(1)>"
    made = browser.post("/api/classes", json={"name": evil})
    assert made.json()["name"] == evil and made.headers["content-type"] == "application/json"
    scripts = "".join(path.read_text(encoding="utf-8") for path in (SOURCE / "static").glob("*.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", scripts)


def test_security_checks_come_before_routing(calm: AppState) -> None:
    for path in (
        "/nothing",
        "/api/nothing",
        "/api/labels/",
        "/static/no.js",
    ):  # also for paths that do not exist
        assert stranger(calm).get(path, headers={"host": "evil.example"}).status_code == 400
    assert stranger(calm).get("/api/nothing").status_code == 401
    assert stranger(calm).get("/img/nothing").status_code == 401
