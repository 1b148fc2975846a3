BEGIN TRANSACTION;
CREATE TABLE ledger_account (
	name TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	unit_column TEXT, 
	adjacency TEXT NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	renyi_order DOUBLE, 
	budget DOUBLE NOT NULL, 
	period_days INTEGER, 
	period_epsilon DOUBLE, 
	key_id TEXT NOT NULL, 
	partition_key TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	split TEXT, 
	gaussian_budget DOUBLE, 
	rooms TEXT, 
	terms TEXT, 
	PRIMARY KEY (name), 
	UNIQUE (dataset)
);
INSERT INTO "ledger_account" VALUES('letters','letters','person','unit','add_remove',30.0,1.0e-06,2.31673624890663099051e+00,1.94885336453747441964e+01,NULL,NULL,'b05bc0419f33','632c9c3c7a2a8f491a542944a49eda5cfd94b5713ed1b10ee673b969f87d692d','2026-11-20T12:00:00.000000Z','{"chances":0.05,"gaussian":0.35,"renyi":0.2,"repeats":0.4}',1.85684555392673829032e+01,NULL,NULL);
CREATE TABLE ledger_draw (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	token BIGINT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (release_id, part, number)
);
CREATE TABLE ledger_entry (
	release_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	account TEXT NOT NULL, 
	method TEXT NOT NULL, 
	state TEXT NOT NULL CHECK (state IN ('RESERVED', 'BEGUN', 'COMMITTED', 'LOST', 'VOID')), 
	event TEXT NOT NULL, 
	loss DOUBLE NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reserved_at TEXT NOT NULL, 
	changed_at TEXT NOT NULL, 
	scratch TEXT, 
	host TEXT, 
	nonce TEXT, 
	artifact_sha256 TEXT, 
	certificate_sha256 TEXT, 
	reason TEXT, 
	reserved_by TEXT, 
	mu_squared DOUBLE, 
	PRIMARY KEY (release_id), 
	UNIQUE (number), 
	FOREIGN KEY(account) REFERENCES ledger_account (name)
);
INSERT INTO "ledger_entry" VALUES('invisible_ink-3f6e24077939fd73',1,'letters','invisible_ink','COMMITTED','{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":1.0119359601627698}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1}',1.77927843814122721433e+00,4.49999887440341161948e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-3f6e24077939fd73','clinic','dd0da5dec4f62b67c785e02a2bb2e239','d8bcc94136ad3486ee4269ca72c8dfacbaf073a4a945dd532e3a505160eb256f','14dce14b38a66983cd9609491470a594b95b42af7fe36f7f6413a61cecaa7ac7',NULL,NULL,9.82231895835470103506e-01);
INSERT INTO "ledger_entry" VALUES('private_prediction-2d4e09cd45e22400',2,'letters','private_prediction','COMMITTED','{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1}',1.05551127882482909114e+00,4.16480096713266423336e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_prediction-2d4e09cd45e22400','clinic','86efbdfa0e21ca17f107de980b25b3de','6582b19336c4bc3e5c01ece03f77ecb8ddd6ddef1c9cf989a0cae42afcf301ef','4b2e518d4cb761190f365b9398c1c037ab0e948e753e9d8c6ea734e8dcba533b',NULL,NULL,9.50719085562081511753e-01);
INSERT INTO "ledger_entry" VALUES('private_evolution-1314658ef326edf7',3,'letters','private_evolution','COMMITTED','{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.5206829131282091,"version":1}',1.00184206264820141463e+00,4.499999999775,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_evolution-1314658ef326edf7','clinic','3714b27a69508269a3a1168856b8cf36','d76aa48c9f7361259a015ef2c42f1c3408e5788a30caf6f2df1bdabd115549d9','76c3e6529d5837cc4c4f4be9c6dc34d1e44f62b4c86f3cf1e361cda8f0ab1aec',NULL,NULL,8.64873645518357436756e-01);
INSERT INTO "ledger_entry" VALUES('keyphrase_seeding-6a518ef49121be08',4,'letters','keyphrase_seeding','COMMITTED','{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.520682913129733},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.520682913129733}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1}',1.00184206264619324322e+00,4.49999999976989428773e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/keyphrase_seeding-6a518ef49121be08','clinic','3661e33dc42b2e62d4e117185caa7ab3','7c91677360e2d0cb273a41d653799da546f8d969fcfa7a3dcb548d292840765c','eb380a1f0f426e0e28d6416566cd9ae369448d493245211475cfd26ae5a31327',NULL,NULL,8.64873645516623934526e-01);
INSERT INTO "ledger_entry" VALUES('dp_lora-a1637be35265d039',5,'letters','dp_lora','COMMITTED','{"kind":"sampled_gaussian","noise_multiplier":1.3239091855006544,"rate":0.5,"steps":3,"version":1}',6.42011381238396516835e-01,4.49999887711245349919e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/dp_lora-a1637be35265d039','clinic','d16bcb23026093bc1a2f60ecd9a88ad5','83b617c6e49a63713e5ce6ad977d9bb807f9f6129b194da06b53b390b8d2c18b','edba51a3384132e8d70e6112c4c5b0c4e0892c15c7d24627e394e1a6de349974',NULL,NULL,9.60057017115950372954e-01);
INSERT INTO "ledger_entry" VALUES('invisible_ink-3cc18c13d17b2c2a',6,'letters','invisible_ink','BEGUN','{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.4412886771288785}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1}',3.38363435386225930301e-01,9.99999693175487092133e-01,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-3cc18c13d17b2c2a','clinic','3b8681d5e5b9bcf499750194d334a2dc',NULL,NULL,NULL,NULL,7.06259506366458539305e-02);
CREATE TABLE ledger_head (
	id INTEGER NOT NULL CHECK (id = 1), 
	seq BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "ledger_head" VALUES(1,18,'d417e8bad8079e496d92e134193ec012dc741af4e313874b0ecb14541923795c');
CREATE TABLE ledger_history (
	seq BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	change TEXT NOT NULL, 
	body TEXT NOT NULL, 
	previous TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "ledger_history" VALUES(1,'2026-11-20T12:00:00.000000Z','letters',NULL,'OPENED','{"adjacency":"add_remove","budget":19.488533645374744,"dataset":"letters","delta":1e-06,"epsilon":30.0,"gaussian_budget":18.568455539267383,"key_id":"b05bc0419f33","key_sha256":"997d80be87a2b5e4513cfdf572a3a5b9e2b4c53e0719fbc4cc3e0bd8c80a0472","period_days":null,"period_epsilon":null,"renyi_order":2.316736248906631,"rooms":null,"salt":"ce27b368121d63aa2e9b40cfcbff7b6c","split":"{\"chances\":0.05,\"gaussian\":0.35,\"renyi\":0.2,\"repeats\":0.4}","unit":"person","unit_column":"unit"}','0000000000000000000000000000000000000000000000000000000000000000','442e69658f4e83cb259d7aef5b1677ec14dfe87b622c8c9c4cc090c7752461fd');
INSERT INTO "ledger_history" VALUES(2,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-3f6e24077939fd73','RESERVED','{"delta":1e-06,"epsilon":4.499998874403412,"event":{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":1.0119359601627698}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1},"loss":1.7792784381412272,"method":"invisible_ink","mu_squared":0.9822318958354701,"number":1,"salt":"c73f62a58e264ed6785fb6c1f7588139","settings_digest":"863597831e56d8e9f3377a74927cd71519b534bcb36c12c2267518be2ad5daff"}','442e69658f4e83cb259d7aef5b1677ec14dfe87b622c8c9c4cc090c7752461fd','4676476c8c4c157cb1e05d2d79939f42cc596b6382035000708e7281eeae1c94');
INSERT INTO "ledger_history" VALUES(3,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-3f6e24077939fd73','BEGUN','{"host":"clinic","nonce":"dd0da5dec4f62b67c785e02a2bb2e239","salt":"6db251a5a54117e176dd582a4e7651b5","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-3f6e24077939fd73"}','4676476c8c4c157cb1e05d2d79939f42cc596b6382035000708e7281eeae1c94','c823b800a30cbd84f427c3bd888d034fa09ae791520cb5648d88e8c5e80f891f');
INSERT INTO "ledger_history" VALUES(4,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-3f6e24077939fd73','COMMITTED','{"artifact_sha256":"d8bcc94136ad3486ee4269ca72c8dfacbaf073a4a945dd532e3a505160eb256f","certificate_sha256":"14dce14b38a66983cd9609491470a594b95b42af7fe36f7f6413a61cecaa7ac7","salt":"48513b34c462c80ea47bbdaee18e42e0"}','c823b800a30cbd84f427c3bd888d034fa09ae791520cb5648d88e8c5e80f891f','b5e1ada073767294e6f9d6309e8aa3e9eaae5b5531741b4513d7a3e623805111');
INSERT INTO "ledger_history" VALUES(5,'2026-11-20T12:00:00.000000Z','letters','private_prediction-2d4e09cd45e22400','RESERVED','{"delta":1e-06,"epsilon":4.164800967132664,"event":{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1},"loss":1.055511278824829,"method":"private_prediction","mu_squared":0.9507190855620815,"number":2,"salt":"32a21321afbde09da16bfef6787df852","settings_digest":"168efcf8c3b8e45daddac8e727d27cebe41dd86b93bef77ad6843a2a7d7349f3"}','b5e1ada073767294e6f9d6309e8aa3e9eaae5b5531741b4513d7a3e623805111','458664b556b37807dfeb3f287013bd5db5f8483bab2749ced620b51049be5f87');
INSERT INTO "ledger_history" VALUES(6,'2026-11-20T12:00:00.000000Z','letters','private_prediction-2d4e09cd45e22400','BEGUN','{"host":"clinic","nonce":"86efbdfa0e21ca17f107de980b25b3de","salt":"8e0fcca7cb1c3a9db1fef98ffbd9e16a","scratch":"/tmp/clinic/.privsyn/scratch/private_prediction-2d4e09cd45e22400"}','458664b556b37807dfeb3f287013bd5db5f8483bab2749ced620b51049be5f87','894d704e5c9a72ad5305868c01b8b90094fceefba03f6aae4a543910ff92fe79');
INSERT INTO "ledger_history" VALUES(7,'2026-11-20T12:00:00.000000Z','letters','private_prediction-2d4e09cd45e22400','COMMITTED','{"artifact_sha256":"6582b19336c4bc3e5c01ece03f77ecb8ddd6ddef1c9cf989a0cae42afcf301ef","certificate_sha256":"4b2e518d4cb761190f365b9398c1c037ab0e948e753e9d8c6ea734e8dcba533b","salt":"bdce7caa0d2535696699b44ff644a0bb"}','894d704e5c9a72ad5305868c01b8b90094fceefba03f6aae4a543910ff92fe79','370c7cad672a8bd48c5b2ec8022f769d4b9dda9aef2473a4b6e8e05d2c1c3db3');
INSERT INTO "ledger_history" VALUES(8,'2026-11-20T12:00:00.000000Z','letters','private_evolution-1314658ef326edf7','RESERVED','{"delta":1e-06,"epsilon":4.499999999775,"event":{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.5206829131282091,"version":1},"loss":1.0018420626482014,"method":"private_evolution","mu_squared":0.8648736455183574,"number":3,"salt":"1ecbc8eaeabe7ccefdaf45fddfd7f47b","settings_digest":"eb5f8b2a082507319557b29d10319791c94a30314e60379580d22de9ce54f4a5"}','370c7cad672a8bd48c5b2ec8022f769d4b9dda9aef2473a4b6e8e05d2c1c3db3','85c2c93d499dd694ef2c907cc8332d5f1bece3c08450fe786beef3ccd73fba45');
INSERT INTO "ledger_history" VALUES(9,'2026-11-20T12:00:00.000000Z','letters','private_evolution-1314658ef326edf7','BEGUN','{"host":"clinic","nonce":"3714b27a69508269a3a1168856b8cf36","salt":"a595dca521d2123657a0285afbfd1eea","scratch":"/tmp/clinic/.privsyn/scratch/private_evolution-1314658ef326edf7"}','85c2c93d499dd694ef2c907cc8332d5f1bece3c08450fe786beef3ccd73fba45','68e74035aedafae175cb880678d24d5636d24d17057c161af0d4be1355e9e13f');
INSERT INTO "ledger_history" VALUES(10,'2026-11-20T12:00:00.000000Z','letters','private_evolution-1314658ef326edf7','COMMITTED','{"artifact_sha256":"d76aa48c9f7361259a015ef2c42f1c3408e5788a30caf6f2df1bdabd115549d9","certificate_sha256":"76c3e6529d5837cc4c4f4be9c6dc34d1e44f62b4c86f3cf1e361cda8f0ab1aec","salt":"4bc868489ed2a13f05b7583e583cce7d"}','68e74035aedafae175cb880678d24d5636d24d17057c161af0d4be1355e9e13f','403bc803d3abc1dd122447ee720bde4f546544f1fe41c60fe50ea33b3acfe0d6');
INSERT INTO "ledger_history" VALUES(11,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-6a518ef49121be08','RESERVED','{"delta":1e-06,"epsilon":4.499999999769894,"event":{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.520682913129733},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.520682913129733}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1},"loss":1.0018420626461932,"method":"keyphrase_seeding","mu_squared":0.8648736455166239,"number":4,"salt":"3d4992cd5ac0246e1bffbd7e320ae049","settings_digest":"438ba52ae60837c84c7bc9483268dccd360b2c584ea243b189493251ef0ded1c"}','403bc803d3abc1dd122447ee720bde4f546544f1fe41c60fe50ea33b3acfe0d6','78a51ce55273568e8459809e7791a341ca3f148cdeee11b788fcafc71a052eef');
INSERT INTO "ledger_history" VALUES(12,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-6a518ef49121be08','BEGUN','{"host":"clinic","nonce":"3661e33dc42b2e62d4e117185caa7ab3","salt":"e287d89d1e3f2702f7633389a2ba83f2","scratch":"/tmp/clinic/.privsyn/scratch/keyphrase_seeding-6a518ef49121be08"}','78a51ce55273568e8459809e7791a341ca3f148cdeee11b788fcafc71a052eef','42509bed8044b27660ce47b1576bf8ace271aa9095b132921812342ce27178e6');
INSERT INTO "ledger_history" VALUES(13,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-6a518ef49121be08','COMMITTED','{"artifact_sha256":"7c91677360e2d0cb273a41d653799da546f8d969fcfa7a3dcb548d292840765c","certificate_sha256":"eb380a1f0f426e0e28d6416566cd9ae369448d493245211475cfd26ae5a31327","salt":"db0733240c9e9ff77a6b388f9ebdc508"}','42509bed8044b27660ce47b1576bf8ace271aa9095b132921812342ce27178e6','65d774dd0f53ff6613725946b81f35909079ae07617bec0d53c0f58c8bacb6e5');
INSERT INTO "ledger_history" VALUES(14,'2026-11-20T12:00:00.000000Z','letters','dp_lora-a1637be35265d039','RESERVED','{"delta":1e-06,"epsilon":4.4999988771124535,"event":{"kind":"sampled_gaussian","noise_multiplier":1.3239091855006544,"rate":0.5,"steps":3,"version":1},"loss":0.6420113812383965,"method":"dp_lora","mu_squared":0.9600570171159504,"number":5,"salt":"9131bb12bd15cd557b243ac7ed8ae33f","settings_digest":"0fbfdfb3c08cbe1c293017f7fb208bbf2c63068dd32e0c914d00d8e2cee8ecb4"}','65d774dd0f53ff6613725946b81f35909079ae07617bec0d53c0f58c8bacb6e5','c7048c3bd0273b0cbfa93efa0110ab05f90022ea7fa7bd11f965bf2e8aaf70de');
INSERT INTO "ledger_history" VALUES(15,'2026-11-20T12:00:00.000000Z','letters','dp_lora-a1637be35265d039','BEGUN','{"host":"clinic","nonce":"d16bcb23026093bc1a2f60ecd9a88ad5","salt":"becf93c0108936c193e637a2635415d7","scratch":"/tmp/clinic/.privsyn/scratch/dp_lora-a1637be35265d039"}','c7048c3bd0273b0cbfa93efa0110ab05f90022ea7fa7bd11f965bf2e8aaf70de','b2b096b7daeee55972d637ecafa2a541afb31bbb4af2c03ac47c6708c7b7af64');
INSERT INTO "ledger_history" VALUES(16,'2026-11-20T12:00:00.000000Z','letters','dp_lora-a1637be35265d039','COMMITTED','{"artifact_sha256":"83b617c6e49a63713e5ce6ad977d9bb807f9f6129b194da06b53b390b8d2c18b","certificate_sha256":"edba51a3384132e8d70e6112c4c5b0c4e0892c15c7d24627e394e1a6de349974","salt":"4243ad7c867a123d81b038c172d57da3"}','b2b096b7daeee55972d637ecafa2a541afb31bbb4af2c03ac47c6708c7b7af64','a9d822ad6352ef6b789288fff09e5af06ddeb1c69155968775a5e85e8c767b1e');
INSERT INTO "ledger_history" VALUES(17,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-3cc18c13d17b2c2a','RESERVED','{"delta":1e-06,"epsilon":0.9999996931754871,"event":{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.4412886771288785}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1},"loss":0.33836343538622593,"method":"invisible_ink","mu_squared":0.07062595063664585,"number":6,"salt":"acb18ac1906c3e61ef3eb9b1f86d82a3","settings_digest":"bd1c3416f4424a7329211d68fba0ad4848daa5f3ef8cf2f26e0835103b13c31e"}','a9d822ad6352ef6b789288fff09e5af06ddeb1c69155968775a5e85e8c767b1e','d0ae815f83828b5f4807b648947cbc96a795e6aa1e5e3f56b5f86eb07a4feb78');
INSERT INTO "ledger_history" VALUES(18,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-3cc18c13d17b2c2a','BEGUN','{"host":"clinic","nonce":"3b8681d5e5b9bcf499750194d334a2dc","salt":"dc80a7e1e2fc56118e90f23868ba0cfc","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-3cc18c13d17b2c2a"}','d0ae815f83828b5f4807b648947cbc96a795e6aa1e5e3f56b5f86eb07a4feb78','d417e8bad8079e496d92e134193ec012dc741af4e313874b0ecb14541923795c');
CREATE TABLE ledger_lease (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	token BIGINT NOT NULL, 
	machine TEXT, 
	host TEXT, 
	pid BIGINT, 
	started BIGINT, 
	expires_at TEXT NOT NULL, 
	steps BIGINT NOT NULL, 
	PRIMARY KEY (release_id, part)
);
INSERT INTO "ledger_lease" VALUES('invisible_ink-3f6e24077939fd73','partition',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-3f6e24077939fd73','shard-0',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-3f6e24077939fd73','shard-1',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-3f6e24077939fd73','certificate',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-2d4e09cd45e22400','partition',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-2d4e09cd45e22400','shard-0',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',30);
INSERT INTO "ledger_lease" VALUES('private_prediction-2d4e09cd45e22400','shard-1',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',34);
INSERT INTO "ledger_lease" VALUES('private_prediction-2d4e09cd45e22400','certificate',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-1314658ef326edf7','partition',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-1314658ef326edf7','shard-0',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',16);
INSERT INTO "ledger_lease" VALUES('private_evolution-1314658ef326edf7','certificate',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-6a518ef49121be08','partition',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-6a518ef49121be08','shard-0',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',6);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-6a518ef49121be08','certificate',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-a1637be35265d039','partition',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-a1637be35265d039','shard-train',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',1);
INSERT INTO "ledger_lease" VALUES('dp_lora-a1637be35265d039','shard-0',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-a1637be35265d039','certificate',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-3cc18c13d17b2c2a','partition',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-3cc18c13d17b2c2a','shard-0',1,NULL,'clinic',10045,811259,'2026-11-20T12:01:00.000000Z',48);
CREATE TABLE ledger_migration (
	version INTEGER NOT NULL, 
	applied_at TEXT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "ledger_migration" VALUES(11,'2026-11-27T16:34:33.443539Z');
CREATE TABLE ledger_refusal (
	number BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	method TEXT, 
	epsilon DOUBLE, 
	delta DOUBLE, 
	error TEXT NOT NULL, 
	message TEXT NOT NULL, 
	refused_by TEXT, 
	PRIMARY KEY (number)
);
CREATE TABLE ledger_secret (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "ledger_secret" VALUES('source','11c541e274beaac5cefc81fe02a2e11f4b7aa3e0f146a58eb624d504b9ce425d');
CREATE TABLE ledger_source (
	release_id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	version TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	noted_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
INSERT INTO "ledger_source" VALUES('invisible_ink-3f6e24077939fd73','letters','v1','f64f991663982ff9cd61f287f3f0dbd7090ab247','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_prediction-2d4e09cd45e22400','letters','v1','f64f991663982ff9cd61f287f3f0dbd7090ab247','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_evolution-1314658ef326edf7','letters','v1','f64f991663982ff9cd61f287f3f0dbd7090ab247','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('keyphrase_seeding-6a518ef49121be08','letters','v1','f64f991663982ff9cd61f287f3f0dbd7090ab247','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('dp_lora-a1637be35265d039','letters','v1','f64f991663982ff9cd61f287f3f0dbd7090ab247','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('invisible_ink-3cc18c13d17b2c2a','letters','v1','f64f991663982ff9cd61f287f3f0dbd7090ab247','2026-11-20T12:00:00.000000Z');
CREATE TABLE ledger_vault (
	release_id TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	nonce TEXT NOT NULL, 
	shards INTEGER NOT NULL, 
	made_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
CREATE INDEX ix_ledger_history_release_id ON ledger_history (release_id);
CREATE INDEX ix_ledger_source_fingerprint ON ledger_source (fingerprint);
CREATE INDEX ix_ledger_entry_account ON ledger_entry (account);
COMMIT;
